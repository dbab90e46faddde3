public import Glibc

/// Owns an open descriptor, and closes it in `deinit`.
package struct FileDescriptor: ~Copyable, Sendable {
    package let number: Int32

    /// Takes over a descriptor that nothing else will close.
    package init(owning number: Int32) {
        precondition(number >= 0, "a descriptor is never negative")
        self.number = number
    }

    deinit {
        // Even after EINTR Linux has freed the number when close returns (close(2)): a retry could close another file.
        _ = close(number)
    }
}

extension FileDescriptor {
    /// Opens a file (open(2)), always with `O_CLOEXEC`.
    ///
    /// - Parameters:
    ///   - path: The file's path.
    ///   - flags: Such as `O_RDONLY`.
    ///   - mode: The permission bits of a file that is created, before the umask.
    package init(opening path: String, _ flags: Int32, mode: mode_t = 0) throws(SystemError) {
        let number = retryingInterrupts { unsafe open(path, flags | O_CLOEXEC, mode) }
        guard number >= 0 else { throw SystemError.last("open") }
        self.init(owning: number)
    }

    /// Opens a regular file without waiting: the path could be that of a pipe without a writer or a device without a medium.
    ///
    /// Anything but a regular file fails with `SystemError.notPlain`. Still waits for a file system that does not answer.
    package init(openingFile path: String, _ flags: Int32 = O_RDONLY) throws(SystemError) {
        // Opening a pipe for writing fails by itself if nobody reads it.
        let file = try FileDescriptor(opening: path, flags | O_NONBLOCK | O_NOCTTY)
        let isFile = try FileStatus.read(file.number).isFile
        guard isFile else { throw SystemError(call: "open", code: SystemError.notPlain) }
        self = file
    }

    /// Opens a file; creates it if it is missing.
    ///
    /// A file that root creates gets the owner of its folder, as in `adoptOwner`.
    ///
    /// - Parameters:
    ///   - path: The file's path.
    ///   - flags: Without `O_NOFOLLOW` a link to a file is followed, but never one that leads nowhere: with such a link, another
    ///     user who may write to the folder could make us create a file anywhere.
    ///   - mode: The permission bits of a file that is created, before the umask.
    package init(
        openingOrCreating path: String, _ flags: Int32 = O_RDWR | O_NOFOLLOW, mode: mode_t = 0o600
    ) throws(SystemError) {
        do {
            try self.init(opening: path, flags | O_CREAT | O_EXCL, mode: mode)
            adoptOwner(of: Path.folder(of: path))
        } catch {
            guard error.code == EEXIST else { throw error }
            try self.init(openingFile: path, flags)
        }
    }

    /// Gives a file that root has created the owner of the file that it replaces, or otherwise of the folder, so that a server
    /// that does not run as root can open it.
    ///
    /// - Parameter target: The path that the file is meant for; it may not exist yet.
    package func adoptOwner(of target: String) {
        guard geteuid() == 0, let status = FileStatus(target) ?? FileStatus(Path.folder(of: target)) else { return }
        // By descriptor, as the path may lead to another file by now.
        _ = fchown(number, status.user, status.group)
    }
}

extension FileDescriptor {
    /// Creates a close-on-exec socket.
    ///
    /// - Parameters:
    ///   - family: Such as `AF_UNIX`.
    ///   - type: `SOCK_STREAM` or `SOCK_DGRAM`, optionally with `SOCK_NONBLOCK`.
    package init(socket family: Int32, _ type: UInt32) throws(SystemError) {
        let number = socket(family, Int32(type | SOCK_CLOEXEC.rawValue), 0)
        guard number >= 0 else { throw SystemError.last("socket") }
        self.init(owning: number)
    }

    /// Turns a socket option on.
    ///
    /// - Parameter name: The option's name, for the error.
    package func setOption(_ level: Int32, _ option: Int32, _ name: String) throws(SystemError) {
        var on: Int32 = 1
        guard unsafe setsockopt(number, level, option, &on, socklen_t(MemoryLayout<Int32>.size)) == 0 else {
            throw SystemError.last("setsockopt \(name)")
        }
    }

    /// Makes connecting and each later call on a blocking socket fail after a time.
    package func setTimeout(seconds: Int) throws(SystemError) {
        var time = timeval(tv_sec: seconds, tv_usec: 0)
        // SO_SNDTIMEO also limits connecting (socket(7)).
        for (option, name) in [(SO_RCVTIMEO, "SO_RCVTIMEO"), (SO_SNDTIMEO, "SO_SNDTIMEO")] {
            let size = socklen_t(MemoryLayout<timeval>.size)
            guard unsafe setsockopt(number, SOL_SOCKET, option, &time, size) == 0 else {
                throw SystemError.last("setsockopt \(name)")
            }
        }
    }
}

/// Repeats a system call as long as a signal interrupts it, and returns any other result.
@inlinable @inline(__always)
package func retryingInterrupts<Result: FixedWidthInteger>(_ call: () -> Result) -> Result {
    while true {
        let result = call()
        if result != -1 || errno != EINTR { return result }
    }
}
