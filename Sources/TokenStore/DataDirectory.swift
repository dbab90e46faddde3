internal import Glibc
internal import Synchronization
package import System

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
        if creates {
            do throws(SystemError) {
                try Folder.create(path)
            } catch {
                guard !FileStatus.exists(path) || FileStatus(path)?.isFolder == true else {
                    throw .notADirectory(path: path)
                }
                throw .unusable(path: path, call: error.call, code: error.code)
            }
        }
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
            case .system(let error): throw .unusable(path: path, call: error.call, code: error.code)
            }
        }
    }

    /// The process that has a folder locked; takes no lock itself.
    ///
    /// - Returns: Nil when no process has, or it cannot be told.
    package static func holder(of path: String) -> Int? {
        FileLock.process(.wholeFile, path + "/" + lockName)
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
            the data directory \(path) cannot be used (\(call): \(SystemError.reason(code))); \
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
