import Glibc
import Synchronization
import System

/// The server's data folder, locked against other processes for as long as this is held.
///
/// It is there whatever store is chosen: the control socket lies in it, and the files of a store that has some.
///
/// Any thread.
package final class DataDirectory: Sendable {
    package static let controlSocketName = "control.sock"
    static let lockName = "lock"
    static let backupRecordName = "last-backup"
    /// The server's own files; stores have others.
    package static let fileNames = [lockName, controlSocketName, backupRecordName]

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
            do {
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

    /// Fails if a folder could not be used or created; changes nothing.
    package static func examine(_ path: String) throws(DataDirectoryError) {
        var status: FileStatus?
        do {
            status = try FileStatus.read(path)
        } catch {
            guard error.code == ENOENT else { throw .unusable(path: path, call: error.call, code: error.code) }
        }
        if let status, !status.isFolder { throw .notADirectory(path: path) }
        let isThere = status != nil
        guard unsafe access(isThere ? path : Folder.nearest(to: path), W_OK | X_OK | (isThere ? R_OK : 0)) == 0 else {
            throw .unusable(path: path, call: "access", code: errno)
        }
    }

    /// The folder of a store that is not in it, without a lock; it need not be there.
    package init(withoutLock path: String) {
        self.path = path
        lock = Mutex(nil)
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

    /// Lets other processes have the folder.
    package func unlock() {
        lock.withLock { $0 = nil }
    }

    private static func lock(_ path: String) throws(DataDirectoryError) -> FileLock {
        guard unsafe access(path, R_OK | W_OK | X_OK) == 0 else {
            throw .unusable(path: path, call: "access", code: errno)
        }
        do {
            return try FileLock(path + "/" + lockName)
        } catch {
            switch error {
            case .held(let processID): throw .inUse(path: path, processID: processID)
            case .link(let error): throw .link(error)
            case .system(let error): throw .unusable(path: path, call: error.call, code: error.code)
            }
        }
    }

    /// The process that has a folder locked.
    ///
    /// - Returns: Nil when no process has, or it cannot be told.
    package static func holder(of path: String) -> Int? {
        FileLock.holder(of: path + "/" + lockName)
    }
}
