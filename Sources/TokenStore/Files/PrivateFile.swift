import Glibc
package import System

/// Files that only their owner may read.
package enum PrivateFile {
    /// Creates an empty file (mode 0600), replacing one that an earlier attempt has left.
    ///
    /// If root creates it, it belongs to its folder's owner.
    @discardableResult
    package static func create(_ path: String) throws(StoreError) -> FileDescriptor {
        _ = unsafe unlink(path)
        do {
            let file = try FileDescriptor(opening: path, O_WRONLY | O_CREAT | O_EXCL, mode: 0o600)
            file.adoptOwner(of: Path.folder(of: path))
            return file
        } catch {
            throw refusedCreation(in: Path.folder(of: path), error) ?? refused("written", path, error)
        }
    }

    /// What to do about a folder in which no file can be created; nil if the folder is not the reason.
    private static func refusedCreation(in folder: String, _ error: SystemError) -> StoreError? {
        // Looked up only for messages that name the user, because the lookup may have to ask other programs.
        var user: String { UserName.present }
        switch error.code {
        case ENOENT: return .refused("there is no folder \(folder); make it, writable for the user \(user)")
        case ENOTDIR: return .refused("\(folder) is no folder; name a file in a folder")
        case EACCES, EPERM:
            return .refused(
                "the user \(user) may not write in the folder \(folder) (\(error.reason)); let it, or name another folder"
            )
        case EROFS:
            return .refused(
                """
                the folder \(folder) cannot be written to (\(error.reason)); name another one or, if systemd keeps the \
                service from it, add ReadWritePaths=\(folder) to the unit
                """
            )
        default: return nil
        }
    }

    /// Makes a file's content durable.
    package static func synchronize(_ path: String) throws(StoreError) {
        do {
            let descriptor = try FileDescriptor(opening: path, O_RDONLY)
            try BlockingIO.synchronize(descriptor.number)
        } catch {
            throw refused("synced", path, error)
        }
    }

    /// Renames a file, replacing the target, and makes that durable.
    package static func rename(_ path: String, to target: String) throws(StoreError) {
        try? FileDescriptor(opening: path, O_RDONLY | O_NOFOLLOW).adoptOwner(of: target)
        guard unsafe Glibc.rename(path, target) == 0 else { throw refused("renamed to \(target)", path) }
        try synchronizeFolder(of: target)
    }

    /// Syncs the entries of a file's folder.
    package static func synchronizeFolder(of path: String) throws(StoreError) {
        do {
            try Folder.synchronize(Path.folder(of: path))
        } catch {
            throw refused("synced", Path.folder(of: path), error)
        }
    }

    /// Removes a database and its accompanying files.
    package static func discardDatabase(_ path: String) {
        for suffix in ["", "-wal", "-shm", "-journal"] { _ = unsafe unlink(path + suffix) }
    }

    package static func remove(_ path: String) throws(StoreError) {
        guard unsafe unlink(path) == 0 || errno == ENOENT else { throw refused("removed", path) }
    }

    private static func opening(_ path: String) throws(StoreError) -> FileDescriptor {
        do {
            return try FileDescriptor(openingFile: path)
        } catch {
            throw refused("read", path, error)
        }
    }

    /// Copies a file into a new one, byte by byte.
    package static func copy(_ path: String, to target: String) throws(StoreError) {
        let source = try opening(path)
        let copy = try create(target)
        while true {
            let count = retryingInterrupts { sendfile(copy.number, source.number, nil, 1 << 24) }
            guard count >= 0 else { throw refused("written", target) }
            if count == 0 { return }
        }
    }

    /// The error of a file operation, with the system's reason.
    package static func refused(
        _ what: String, _ path: String, _ error: SystemError = SystemError.last("")
    ) -> StoreError {
        .refused("\(path) cannot be \(what): \(error.reason)")
    }
}
