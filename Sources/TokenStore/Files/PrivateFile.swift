internal import Glibc
package import System

/// Files that nobody but their owner may read.
package enum PrivateFile {
    /// Makes an empty file (mode 0600), in the place of one that an earlier attempt has left behind; its folder's owner's
    /// when root makes it.
    package static func create(_ path: String) throws(StoreError) {
        _ = unsafe unlink(path)
        do throws(SystemError) {
            try FileDescriptor(opening: path, O_WRONLY | O_CREAT | O_EXCL, mode: 0o600)
                .adoptOwner(of: Path.folder(of: path))
        } catch {
            throw refused("written", path, error)
        }
    }

    /// Makes a file's content durable.
    package static func synchronize(_ path: String) throws(StoreError) {
        do throws(SystemError) {
            let descriptor = try FileDescriptor(opening: path, O_RDONLY)
            guard fsync(descriptor.number) == 0 else { throw SystemError.last("fsync") }
        } catch {
            throw refused("synced", path, error)
        }
    }

    /// Puts a file in the place of another one, durably.
    package static func rename(_ path: String, to target: String) throws(StoreError) {
        try? FileDescriptor(opening: path, O_RDONLY | O_NOFOLLOW).adoptOwner(of: target)
        guard unsafe Glibc.rename(path, target) == 0 else { throw refused("renamed to \(target)", path) }
        try synchronizeFolder(of: target)
    }

    /// Makes durable which files are in a file's folder, and which are no longer.
    package static func synchronizeFolder(of path: String) throws(StoreError) {
        do throws(SystemError) {
            try Folder.synchronize(Path.folder(of: path))
        } catch {
            throw refused("synced", Path.folder(of: path), error)
        }
    }

    /// Removes a database with all that may lie beside it.
    package static func discardDatabase(_ path: String) {
        for suffix in ["", "-wal", "-shm", "-journal"] { _ = unsafe unlink(path + suffix) }
    }

    package static func remove(_ path: String) throws(StoreError) {
        guard unsafe unlink(path) == 0 || errno == ENOENT else { throw refused("removed", path) }
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
        // A file that has another name as well, of a snapshot say, belongs to others too.
        guard let status = try? FileStatus.read(descriptor), status.linkCount == 0 else { return }
        let zeros = [UInt8](repeating: 0, count: 1 << 20)
        var offset = 0
        while offset < status.size {
            let count = unsafe pwrite(descriptor, zeros, min(zeros.count, status.size - offset), offset)
            guard count > 0 else { return }
            offset += count
        }
        _ = fsync(descriptor)
    }

    /// Says what could not be done with a file, and the system's reason; without an error that of the last call.
    package static func refused(
        _ what: String, _ path: String, _ error: SystemError = SystemError.last("")
    ) -> StoreError {
        .refused("\(path) cannot be \(what): \(error.reason)")
    }
}
