internal import Glibc

/// A file that is locked against other processes for as long as this value lives.
///
/// The lock is the kernel's (flock(2)) and ends with the process, however that ends: a file that is left behind blocks
/// nobody. The file holds the owner's process id, for the message of a process that is refused.
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
        guard flock(descriptor.number, LOCK_EX | LOCK_NB) == 0 else {
            throw .held(processID: Self.readNumber(descriptor.number))
        }
        let text = Array("\(getpid())\n".utf8)
        _ = ftruncate(descriptor.number, 0)
        // Only for a message: a disk that is full here will be reported by the database.
        _ = unsafe text.withUnsafeBytes { unsafe pwrite(descriptor.number, $0.baseAddress, $0.count, 0) }
        self.path = path
        self.descriptor = descriptor
    }

    deinit {
        // A process that is just being spawned may still have a copy of the descriptor, which would keep the lock.
        _ = flock(descriptor.number, LOCK_UN)
    }

    private static func open(_ path: String) throws(Failure) -> FileDescriptor {
        do throws(SystemError) {
            // Not through a link: the folder's owner could make one, and root would empty whatever file it leads to.
            return try FileDescriptor(openingOrCreating: path)
        } catch {
            throw FollowedPath.isLink(path)
                ? .link(.unexpected(path: path)) : .system(SystemError(call: "open \(path)", code: error.code))
        }
    }

    /// Whether the path still leads to the locked file, so that no other process can have locked another file there.
    package var isInPlace: Bool {
        guard let own = try? FileStatus.read(descriptor.number), let found = FileStatus(path) else { return false }
        return own.identity == found.identity
    }

    /// Kinds of locks, as `/proc/locks` calls them.
    package enum Kind: String {
        /// Of flock(2).
        case wholeFile = "FLOCK"
        /// Of fcntl(2), which SQLite uses.
        case ranges = "POSIX"
    }

    /// The process that holds a lock on a file, as the kernel lists it (proc(5), `/proc/locks`); takes no lock itself.
    ///
    /// - Returns: Nil if there is none, or it cannot be told.
    package static func process(_ kind: Kind, _ path: String) -> Int? {
        guard let file = LockedFile(path: path), let text = TextFile.contents(of: "/proc/locks") else { return nil }
        return file.process(kind, in: text)
    }

    private static func readNumber(_ descriptor: Int32) -> Int? {
        guard let text = try? BlockingIO.read(from: descriptor, at: 0, count: 24) else { return nil }
        return Int(String(decoding: text.prefix { $0 >= 0x30 && $0 <= 0x39 }, as: UTF8.self))
    }
}
