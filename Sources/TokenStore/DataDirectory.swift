internal import Glibc
internal import Synchronization

/// The server's data folder, locked against other processes for as long as this is held.
///
/// It is there whatever store is chosen: the control socket lies in it, and the files of a store that has some.
///
/// Any thread.
package final class DataDirectory: Sendable {
    package static let controlSocketName = "control.sock"
    package static let lockName = "lock"
    /// What the server itself puts there; stores have files of their own.
    package static let fileNames = [lockName, controlSocketName]

    package let path: String
    /// Nil while the folder is not locked.
    private let lock: Mutex<FileLock?>

    /// Locks a folder.
    ///
    /// - Parameters:
    ///   - path: The folder.
    ///   - creates: Whether it is created (mode 0700) if it is missing, with the folders above it.
    package init(path: String, creates: Bool) throws(DataDirectoryError) {
        if creates { try Self.create(path) }
        lock = Mutex(try Self.lock(path))
        self.path = path
    }

    /// Whether the path still leads to the folder that is locked, so that nobody else can have locked another one there.
    package var isInPlace: Bool {
        lock.withLock { lock in
            switch lock {
            case .some(let lock): lock.isInPlace
            case .none: false
            }
        }
    }

    /// Locks the folder that the path leads to now, after another one has come to lie there.
    package func lockAgain() throws(DataDirectoryError) {
        try lock.withLock { (lock) throws(DataDirectoryError) in
            // The former lock is of no use to anybody; another process may have locked what is there now.
            lock = nil
            lock = try Self.lock(path)
        }
    }

    /// Lets other processes have the folder.
    package func unlock() {
        lock.withLock { $0 = nil }
    }

    private static func lock(_ path: String) throws(DataDirectoryError) -> FileLock {
        guard unsafe access(path, R_OK | W_OK | X_OK) == 0 else {
            throw .unusable(path: path, call: "access", code: errno)
        }
        do throws(FileLock.Failure) {
            return try FileLock(path + "/" + lockName)
        } catch {
            switch error {
            case .held(let processID): throw .inUse(path: path, processID: processID)
            case .link(let error): throw .link(error)
            case .system(let call, let code): throw .unusable(path: path, call: call, code: code)
            }
        }
    }

    /// The process that has a folder locked; takes no lock itself.
    ///
    /// - Returns: Nil when no process has, or it cannot be told.
    package static func holder(of path: String) -> Int? {
        FileLock.process(.wholeFile, path + "/" + lockName)
    }

    /// Makes the folder and those above it, as far as they are missing.
    private static func create(_ path: String) throws(DataDirectoryError) {
        var status = stat()
        if unsafe stat(path, &status) == 0 {
            guard status.st_mode & S_IFMT == S_IFDIR else { throw .notADirectory(path: path) }
            return
        }
        let parent = path.lastIndex(of: "/").map { String(path[..<$0]) } ?? ""
        if errno == ENOENT && !parent.isEmpty { try create(parent) }
        guard unsafe mkdir(path, 0o700) == 0 || errno == EEXIST else {
            throw .unusable(path: path, call: "mkdir", code: errno)
        }
        // The folder's own entry has to survive a power cut as well.
        guard PrivateFile.synchronizeFolder(parent.isEmpty ? (path.hasPrefix("/") ? "/" : ".") : parent) else {
            throw .unusable(path: path, call: "fsync", code: errno)
        }
    }
}

/// Why a data folder cannot be used; says what to do about it.
package enum DataDirectoryError: Error, Hashable, CustomStringConvertible {
    /// It cannot be created, entered or written; with the `errno` of the call.
    case unusable(path: String, call: String, code: Int32)
    /// The path exists and is no directory.
    case notADirectory(path: String)
    /// Another process has it locked; its process id, if it could be read.
    case inUse(path: String, processID: Int?)
    /// A link that is not followed stands in the place of a file.
    case link(LinkError)

    package var description: String {
        switch self {
        case .unusable(let path, let call, let code):
            """
            the data directory \(path) cannot be used (\(call): \(unsafe String(cString: strerror(code)))); \
            give the server's user write access to it, or name another one with --data-directory
            """
        case .notADirectory(let path):
            "the data directory \(path) is not a directory; name another one with --data-directory"
        case .inUse(let path, let processID):
            """
            the data directory \(path) is in use by \(processID.map { "process \($0)" } ?? "another process"); \
            stop that one first, or name another directory with --data-directory
            """
        case .link(let error): "\(error)"
        }
    }
}
