internal import Glibc

/// Files that nobody but their owner may read.
package enum PrivateFile {
    /// Makes an empty file (mode 0600), in the place of one that an earlier attempt has left behind; its folder's owner's
    /// when root makes it.
    package static func create(_ path: String) throws(StoreError) {
        _ = unsafe unlink(path)
        let descriptor = unsafe open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { throw refused("written", path) }
        adoptOwner(descriptor, of: folder(of: path))
        close(descriptor)
    }

    /// Makes a file's content durable.
    package static func synchronize(_ path: String) throws(StoreError) {
        let descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw refused("synced", path) }
        defer { close(descriptor) }
        guard fsync(descriptor) == 0 else { throw refused("synced", path) }
    }

    /// Puts a file in the place of another one, durably.
    package static func rename(_ path: String, to target: String) throws(StoreError) {
        let descriptor = unsafe open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC)
        if descriptor >= 0 {
            adoptOwner(descriptor, of: target)
            close(descriptor)
        }
        guard unsafe Glibc.rename(path, target) == 0 else { throw refused("renamed to \(target)", path) }
        try synchronizeFolder(of: target)
    }

    /// Makes durable which files are in a file's folder, and which are no longer.
    package static func synchronizeFolder(of path: String) throws(StoreError) {
        guard synchronizeFolder(folder(of: path)) else { throw refused("synced", folder(of: path)) }
    }

    /// Makes a folder's entries durable (fsync(2), "Calling fsync").
    ///
    /// - Returns: False when that has failed; errno tells why.
    package static func synchronizeFolder(_ path: String) -> Bool {
        let descriptor = unsafe open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        // One that may be written and not read cannot be synced.
        guard descriptor >= 0 else { return errno == EACCES }
        let isDurable = fsync(descriptor) == 0
        let code = errno
        _ = close(descriptor)
        errno = code
        // Some file systems have nothing to sync in a folder.
        return isDurable || code == EINVAL
    }

    /// Makes a file (mode 0600) that is missing, or opens the one that is there, to read and write; never through a link.
    ///
    /// - Parameter path: Of the file; one that is made is its folder's owner's, as in `create`.
    /// - Returns: The descriptor; negative after an error, whose number is in errno.
    package static func openOrMake(_ path: String) -> Int32 {
        let flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW
        let made = unsafe open(path, flags | O_CREAT | O_EXCL, 0o600)
        guard made >= 0 else { return errno == EEXIST ? unsafe open(path, flags) : made }
        adoptOwner(made, of: folder(of: path))
        return made
    }

    /// Gives a file that root has made to the owner of what it replaces, or otherwise of the folder: a server that is not
    /// root has to open it.
    ///
    /// - Parameters:
    ///   - descriptor: Of the file: a path may have come to lead elsewhere.
    ///   - target: What it is to be.
    package static func adoptOwner(_ descriptor: Int32, of target: String) {
        var status = stat()
        guard geteuid() == 0, unsafe stat(target, &status) == 0 || stat(folder(of: target), &status) == 0 else {
            return
        }
        _ = fchown(descriptor, status.st_uid, status.st_gid)
    }

    /// Whether two paths lead to one file.
    package static func areSame(_ first: String, _ second: String) -> Bool {
        var (one, other) = (stat(), stat())
        return unsafe stat(first, &one) == 0 && stat(second, &other) == 0
            && one.st_dev == other.st_dev && one.st_ino == other.st_ino
    }

    package enum Kind {
        case nothing, file, folder
        /// A device, a pipe or a socket.
        case other
    }

    /// What is at a path, or where a symbolic link there leads to.
    package static func kind(of path: String) -> Kind {
        var status = stat()
        guard unsafe stat(path, &status) == 0 else { return .nothing }
        switch status.st_mode & S_IFMT {
        case S_IFREG: return .file
        case S_IFDIR: return .folder
        default: return .other
        }
    }

    /// The first bytes of a file; nil when it cannot be read.
    package static func head(of path: String, count: Int) -> [UInt8]? {
        let descriptor = unsafe open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        var bytes = [UInt8](repeating: 0, count: count)
        let received = unsafe read(descriptor, &bytes, count)
        return received < 0 ? nil : Array(bytes[..<received])
    }

    /// Removes a database with all that may lie beside it.
    package static func discardDatabase(_ path: String) {
        for suffix in ["", "-wal", "-shm", "-journal"] { _ = unsafe unlink(path + suffix) }
    }

    package static func remove(_ path: String) throws(StoreError) {
        guard unsafe unlink(path) == 0 || errno == ENOENT else { throw refused("removed", path) }
    }

    package static func exists(_ path: String) -> Bool {
        unsafe access(path, F_OK) == 0
    }

    /// Copies a file into a new one, byte by byte.
    package static func copy(_ path: String, to target: String) throws(StoreError) {
        let source = unsafe open(path, O_RDONLY | O_CLOEXEC)
        guard source >= 0 else { throw refused("read", path) }
        defer { close(source) }
        try create(target)
        let copy = unsafe open(target, O_WRONLY | O_NOFOLLOW | O_CLOEXEC)
        guard copy >= 0 else { throw refused("written", target) }
        defer { close(copy) }
        while true {
            let count = sendfile(copy, source, nil, 1 << 24)
            guard count >= 0 else { throw refused("written", target) }
            if count == 0 { return }
        }
    }

    /// Overwrites an open file with zeros, as far as the disk lets itself be overwritten.
    package static func overwrite(_ descriptor: Int32) {
        var status = stat()
        // One that has another name as well, of a snapshot say, is somebody else's too.
        guard unsafe fstat(descriptor, &status) == 0, status.st_nlink == 0 else { return }
        let zeros = [UInt8](repeating: 0, count: 1 << 20)
        var offset = 0
        while offset < Int(status.st_size) {
            let count = unsafe pwrite(descriptor, zeros, min(zeros.count, Int(status.st_size) - offset), offset)
            guard count > 0 else { return }
            offset += count
        }
        _ = fsync(descriptor)
    }

    package static func size(_ path: String) -> Int {
        var status = stat()
        return unsafe stat(path, &status) == 0 ? Int(status.st_size) : 0
    }

    /// The path without symbolic links; as it is when it leads nowhere.
    package static func resolved(_ path: String) -> String {
        guard let resolved = unsafe realpath(path, nil) else { return path }
        defer { unsafe free(resolved) }
        return unsafe String(cString: resolved)
    }

    package static func folder(of path: String) -> String {
        guard let slash = path.lastIndex(of: "/") else { return "." }
        return slash == path.startIndex ? "/" : String(path[..<slash])
    }

    /// Says of the last system call what it could not do with a file.
    package static func refused(_ what: String, _ path: String) -> StoreError {
        .refused("\(path) cannot be \(what): \(unsafe String(cString: strerror(errno)))")
    }
}
