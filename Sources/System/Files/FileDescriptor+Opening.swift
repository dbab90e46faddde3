package import Glibc

extension FileDescriptor {
    /// Opens a file (open(2)), always with `O_CLOEXEC`.
    ///
    /// - Parameters:
    ///   - path: Of the file.
    ///   - flags: Such as `O_RDONLY`.
    ///   - mode: The permission bits of a file that is created, before the umask.
    package init(opening path: String, _ flags: Int32, mode: mode_t = 0) throws(SystemError) {
        let number = retryingInterrupts { unsafe open(path, flags | O_CLOEXEC, mode) }
        guard number >= 0 else { throw SystemError.last("open") }
        self.init(owning: number)
    }

    /// Opens a file that somebody has named, without waiting for it: a pipe has no writer perhaps, and a device no medium.
    ///
    /// What is no plain file is refused with `SystemError.notPlain`. A file system that does not answer is waited for.
    package init(openingFile path: String, _ flags: Int32 = O_RDONLY) throws(SystemError) {
        // A pipe that is opened for writing alone, and that nobody reads, fails by itself.
        let file = try FileDescriptor(opening: path, flags | O_NONBLOCK | O_NOCTTY)
        let isFile = try FileStatus.read(file.number).isFile
        guard isFile else { throw SystemError(call: "open", code: SystemError.notPlain) }
        self = file
    }

    /// Opens a file for reading and writing; creates it (mode 0600) if it is missing.
    ///
    /// Does not follow a link in its place. A file that root creates gets the owner of its folder, as in `adoptOwner`.
    package init(openingOrCreating path: String) throws(SystemError) {
        let flags = O_RDWR | O_NOFOLLOW
        do throws(SystemError) {
            try self.init(opening: path, flags | O_CREAT | O_EXCL, mode: 0o600)
            adoptOwner(of: Path.folder(of: path))
        } catch {
            guard error.code == EEXIST else { throw error }
            try self.init(openingFile: path, flags)
        }
    }

    /// Gives a file that root has created to the owner of the file that it replaces, or else of that file's folder: a server
    /// that does not run as root has to open it.
    ///
    /// - Parameter target: The path that the file is meant for; it may not exist yet.
    package func adoptOwner(of target: String) {
        guard geteuid() == 0, let status = FileStatus(target) ?? FileStatus(Path.folder(of: target)) else { return }
        // By descriptor: the file's path may have come to lead elsewhere.
        _ = fchown(number, status.user, status.group)
    }
}
