internal import Glibc

/// Replaces small files as a whole, so that the old or the new one exists whatever happens.
package enum FileReplacement {
    /// Writes bytes to a new file beside the old one, syncs it and renames it over the old one, durably.
    ///
    /// If root creates the file, it gets the owner of the one that it replaces, or of its folder. Two processes must not
    /// replace the same file at once.
    ///
    /// - Parameters:
    ///   - path: Not a symbolic link, which would be replaced itself.
    ///   - bytes: The new contents.
    ///   - permissions: Those that the new file has if the one that it replaces has them; otherwise its mode is 0600.
    package static func replace(
        _ path: String, with bytes: [UInt8], keeping permissions: UInt32 = 0
    ) throws(SystemError) {
        let temporary = path + ".new"
        // One that an earlier attempt has left.
        _ = unsafe unlink(temporary)
        let descriptor = try FileDescriptor(opening: temporary, O_WRONLY | O_CREAT | O_EXCL, mode: 0o600)
        descriptor.adoptOwner(of: path)
        do throws(SystemError) {
            if permissions != 0 { try keep(permissions, of: path, descriptor) }
            try BlockingIO.write(bytes, to: descriptor.number)
            try BlockingIO.synchronize(descriptor.number)
            guard unsafe rename(temporary, path) == 0 else { throw SystemError.last("rename") }
        } catch {
            _ = unsafe unlink(temporary)
            throw error
        }
        try Folder.synchronize(Path.folder(of: path))
    }

    /// Gives a new file those of `permissions` that the file at a path has, and its group if this user is in that group.
    private static func keep(
        _ permissions: UInt32, of path: String, _ descriptor: borrowing FileDescriptor
    ) throws(SystemError) {
        guard let former = FileStatus(path, followingLinks: false), former.isFile else { return }
        // The group comes first, because the permissions are meant for it.
        _ = fchown(descriptor.number, uid_t.max, former.group)
        guard fchmod(descriptor.number, former.mode & permissions) == 0 else { throw SystemError.last("fchmod") }
    }

    /// Locks the folder of a file while `body` reads and replaces the file (flock(2)), so that no change of another process
    /// that does the same is lost.
    package static func withLock<Result, Failure: Error>(
        onFolderOf path: String, _ body: () throws(Failure) -> Result
    ) throws(Failure) -> Result {
        // A folder that cannot be locked, as on some network file systems, is changed all the same.
        let folder = Path.folder(of: path)
        let descriptor = retryingInterrupts { unsafe open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) }
        defer { close(descriptor) }
        _ = retryingInterrupts { flock(descriptor, LOCK_EX) }
        return try body()
    }
}
