internal import Glibc
internal import System
internal import TokenStore

/// Where a data folder's database is, and the lock of one that lies elsewhere.
///
/// `tokens.db` may be a link, and another folder may lead to the same database as well.
struct DatabaseLock: ~Copyable, Sendable {
    /// The path of the database's file: if `tokens.db` is a link, of the file that it leads to.
    let database: String
    /// Nil for a database in the folder itself, whose lock covers it.
    private let lock: FileLock?

    /// Finds the database of a folder that is locked, and locks it if it lies elsewhere.
    ///
    /// - Parameter directory: The folder's path.
    init(in directory: String) throws(SQLiteOpenError) {
        let found: FollowedPath
        do throws(LinkError) {
            found = try FollowedPath(directory + "/" + DatabaseFileName.database)
            // SQLite does not follow these either, but its error says less.
            for suffix in ["-wal", "-shm", "-journal"] where FollowedPath.isLink(found.path + suffix) {
                throw .unexpected(path: found.path + suffix)
            }
        } catch {
            throw .directory(.link(error))
        }
        lock = found.isLink ? try Self.lock(found.path, of: directory) : nil
        self.database = found.path
    }

    /// Whether the path still leads to the file that is locked.
    var isInPlace: Bool {
        switch lock {
        case .some(let lock): lock.isInPlace
        case .none: true
        }
    }

    /// The lock file of a database that a link leads to: the lock of its folder, if that could be a server's data
    /// folder, otherwise a file beside the database.
    static func file(ofLinked database: String) -> String {
        let folder = Path.folder(of: database)
        let isStandard = database == folder + "/" + DatabaseFileName.database
        return isStandard ? folder + "/" + DataDirectory.lockName : database + ".lock"
    }

    /// The process that has locked the database that a folder has a link to.
    ///
    /// - Returns: Nil without a link, when no process has, or it cannot be told.
    static func holder(ofDatabaseIn directory: String) -> Int? {
        guard let database = try? FollowedPath(directory + "/" + DatabaseFileName.database), database.isLink else {
            return nil
        }
        return FileLock.holder(of: file(ofLinked: database.path))
    }

    private static func lock(_ database: String, of directory: String) throws(SQLiteOpenError) -> FileLock {
        let file = file(ofLinked: database)
        do throws(FileLock.Failure) {
            return try FileLock(file)
        } catch {
            switch error {
            case .held(let processID):
                throw .databaseInUse(path: database, directory: directory, processID: processID)
            case .link(let error): throw .directory(.link(error))
            case .system(let error):
                throw .directory(.unusable(path: Path.folder(of: file), call: error.call, code: error.code))
            }
        }
    }
}
