import Glibc

/// A file that is locked against other processes for as long as this value lives.
///
/// The kernel's lock (flock(2)) ends with the process, so a file that is left behind blocks nobody. The file contains the
/// owner's process id, for the error message of another process.
package struct FileLock: ~Copyable, Sendable {
    private let path: String
    private let descriptor: FileDescriptor

    /// Why a file cannot be locked.
    package enum Failure: Error {
        /// Another process holds the lock; its id, if it could be read.
        case held(processID: Int?)
        case link(LinkError)
        case system(SystemError)
    }

    /// Locks a file, which is created if it is missing.
    package init(_ path: String) throws(Failure) {
        let descriptor = try Self.open(path)
        // `holder` in another process takes a shared lock for a moment.
        var attempts = 0
        while flock(descriptor.number, LOCK_EX | LOCK_NB) != 0 {
            attempts += 1
            guard attempts < 10 else { throw .held(processID: Self.readNumber(descriptor.number)) }
            usleep(5_000)
        }
        let text = Array("\(getpid())\n".utf8)
        _ = ftruncate(descriptor.number, 0)
        // Errors are ignored: the id is only for a message, and the database reports a full disk.
        _ = unsafe text.withUnsafeBytes { unsafe pwrite(descriptor.number, $0.baseAddress, $0.count, 0) }
        self.path = path
        self.descriptor = descriptor
    }

    deinit {
        // A process that is just being spawned may still have a copy of the descriptor, which would keep the lock.
        _ = flock(descriptor.number, LOCK_UN)
    }

    private static func open(_ path: String) throws(Failure) -> FileDescriptor {
        do {
            // Does not follow a link: the folder's owner could make one, and root would empty the file that it leads to.
            return try FileDescriptor(openingOrCreating: path)
        } catch {
            throw FollowedPath.isLink(path)
                ? .link(.unexpected(path: path)) : .system(SystemError(call: "open \(path)", code: error.code))
        }
    }

    /// Whether the path still leads to the locked file, so that no other process can lock another file there; true if that
    /// cannot be found out.
    package var isInPlace: Bool {
        do {
            return try FileStatus.read(descriptor.number).identity == FileStatus.read(path).identity
        } catch {
            return error.code != ENOENT && error.code != ENOTDIR
        }
    }

    /// The id of the process that has a file locked, perhaps this one; takes a shared lock for a moment to find out.
    ///
    /// - Returns: Nil if there is none, or its id cannot be read.
    package static func holder(of path: String) -> Int? {
        guard let descriptor = try? FileDescriptor(opening: path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW) else {
            return nil
        }
        if flock(descriptor.number, LOCK_SH | LOCK_NB) == 0 {
            _ = flock(descriptor.number, LOCK_UN)
            return nil
        }
        return errno == EWOULDBLOCK ? readNumber(descriptor.number) : nil
    }

    private static func readNumber(_ descriptor: Int32) -> Int? {
        guard let text = try? BlockingIO.read(from: descriptor, at: 0, count: 24) else { return nil }
        return Int(String(decoding: text.prefix { $0 >= 0x30 && $0 <= 0x39 }, as: UTF8.self))
    }
}
