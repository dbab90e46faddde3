internal import Glibc

/// A file that is locked against other processes for as long as this value lives.
///
/// The lock is the kernel's (flock(2)) and goes with the process, however that ends: a file that is left behind blocks
/// nobody. It holds the owner's process id for whoever is refused.
package struct FileLock: ~Copyable, Sendable {
    private let path: String
    private let descriptor: Int32

    /// Why a file cannot be locked.
    package enum Failure: Error {
        /// Another process has it; its id, if it could be read.
        case held(processID: Int?)
        case link(LinkError)
        case system(call: String, code: Int32)
    }

    /// Locks a file, which is made when it is not there.
    package init(_ path: String) throws(Failure) {
        // Not through a link: the folder's owner could make one, and root would empty whatever file it leads to.
        let descriptor = PrivateFile.openOrMake(path)
        guard descriptor >= 0 else {
            let code = errno
            throw FollowedPath.isLink(path) ? .link(.unexpected(path: path)) : .system(call: "open \(path)", code: code)
        }
        guard flock(descriptor, LOCK_EX | LOCK_NB) == 0 else {
            let processID = Self.readNumber(descriptor)
            _ = close(descriptor)
            throw .held(processID: processID)
        }
        let text = Array("\(getpid())\n".utf8)
        _ = ftruncate(descriptor, 0)
        // Only for a message: a disk that is full here will be reported by the database.
        _ = unsafe text.withUnsafeBytes { unsafe pwrite(descriptor, $0.baseAddress, $0.count, 0) }
        self.path = path
        self.descriptor = descriptor
    }

    deinit {
        _ = close(descriptor)
    }

    /// Whether the path still leads to the file that is locked, so that nobody else can have locked another one there.
    package var isInPlace: Bool {
        var (own, found) = (stat(), stat())
        return unsafe fstat(descriptor, &own) == 0 && stat(path, &found) == 0
            && own.st_dev == found.st_dev && own.st_ino == found.st_ino
    }

    private static func readNumber(_ descriptor: Int32) -> Int? {
        var text = [UInt8](repeating: 0, count: 24)
        let count = unsafe pread(descriptor, &text, text.count, 0)
        guard count > 0 else { return nil }
        return Int(String(decoding: text[..<count].prefix { $0 >= 0x30 && $0 <= 0x39 }, as: UTF8.self))
    }

    /// Kinds of locks, as `/proc/locks` calls them.
    package enum Kind: String {
        /// Of flock(2).
        case wholeFile = "FLOCK"
        /// Of fcntl(2), which SQLite uses.
        case ranges = "POSIX"
    }

    /// The process that has a lock on a file, as the kernel lists it (proc(5), `/proc/locks`); takes no lock itself.
    ///
    /// - Returns: Nil when there is none, or it cannot be told.
    package static func process(_ kind: Kind, _ path: String) -> Int? {
        var status = stat()
        guard unsafe stat(path, &status) == 0, let file = unsafe fopen("/proc/locks", "re") else {
            return nil
        }
        defer { unsafe fclose(file) }
        var line = [CChar](repeating: 0, count: 512)
        while unsafe fgets(&line, Int32(line.count), file) != nil {
            let text = String(decoding: line.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
            // As in `1: FLOCK  ADVISORY  WRITE 4711 08:01:131130 0 EOF`; what waits has an arrow behind the number.
            let words = text.split(separator: " ")
            guard words.count > 5, words[1] == kind.rawValue, words[5].hasSuffix(":\(status.st_ino)") else { continue }
            return Int(words[4])
        }
        return nil
    }
}
