internal import Glibc
internal import System
internal import TokenStore

/// The files of an open store, and whether their paths still lead to them.
///
/// The folder of a running server can be deleted or moved, and an operator may remove or truncate the WAL, mistaking it for a
/// log. What is then written is lost, so the files are looked at between each commit and its acknowledgement. After such an
/// accident nothing is mended in place: the server ends, and its next start examines what there is.
///
/// Used by one thread at a time.
struct StoreFiles: ~Copyable {
    enum Accident {
        /// The database is not in its place.
        case databaseRemoved
        /// The database is shorter than it was, and than its last commit says.
        case databaseCut
        /// The database is in its place, and its WAL is not.
        case walRemoved
        /// The WAL is shorter than what was written to it.
        case walCut
        /// Another process may have locked the store.
        case lockRemoved
    }

    private let directory: DataDirectory
    private let lock: DatabaseLock
    private let database: String
    /// Beside the database itself, even if a symbolic link leads to it.
    private let wal: String
    private let identity: FileIdentity?
    private var databaseSize: UInt64
    private var walIdentity: FileIdentity?
    private var index: SQLiteConnection.WALIndex?

    /// Takes the present files for the store's.
    ///
    /// - Parameters:
    ///   - directory: The data folder.
    ///   - lock: That of the database.
    ///   - connection: Has the database and its WAL open.
    init(_ directory: DataDirectory, _ lock: consuming DatabaseLock, of connection: SQLiteConnection) {
        self.directory = directory
        database = lock.database
        self.lock = lock
        wal = Path.resolved(database) + "-wal"
        let file = try? FileIdentity.read(database)
        identity = file?.identity
        databaseSize = file?.size ?? 0
        adopt(connection)
    }

    /// Takes the WAL that a connection has open for the store's; its path may lead to another file by now.
    mutating func adopt(_ connection: SQLiteConnection) {
        walIdentity = connection.wal?.identity
        index = connection.walIndex
    }

    /// Forgets how long the files are, until they are adopted again.
    mutating func forgetSizes() {
        (index, databaseSize) = (nil, 0)
    }

    /// Looks at the database and its WAL; fails if they cannot be looked at.
    ///
    /// - Parameter index: The WAL's index; nil if the database is closed, and the index as it was.
    mutating func accident(_ index: SQLiteConnection.WALIndex?) throws(SystemError) -> Accident? {
        if let index { self.index = index }
        guard let found = try Self.find(database), found.identity == identity else { return .databaseRemoved }
        // A checkpoint may cut the database to what its last commit says.
        guard found.size >= min(databaseSize, self.index?.databaseSize.map(UInt64.init) ?? .max) else {
            return .databaseCut
        }
        databaseSize = found.size
        guard let file = try Self.find(wal), file.identity == walIdentity else { return .walRemoved }
        return file.size < self.index?.size ?? 0 ? .walCut : nil
    }

    /// Whether this process still has the locks of the folder and the database that the paths lead to.
    var isLocked: Bool { directory.isInPlace && lock.isInPlace }

    /// Nil if there is no such file.
    private static func find(_ path: String) throws(SystemError) -> (identity: FileIdentity, size: UInt64)? {
        do throws(SystemError) {
            return try FileIdentity.read(path)
        } catch {
            guard error.code == ENOENT || error.code == ENOTDIR else { throw error }
            return nil
        }
    }
}

extension StoreFiles.Accident {
    /// - Parameters:
    ///   - database: Its path.
    ///   - isSaved: Whether the database has all that the WAL held.
    func description(of database: String, isSaved: Bool) -> String {
        let loss = """
            what was stored since the last checkpoint may be lost, although clients were told that it is stored
            """
        return switch self {
        case .databaseRemoved: "the database \(database) was moved, removed or replaced while the server ran"
        case .databaseCut: "the database \(database) was cut while the server ran"
        case .walRemoved:
            """
            the WAL \(database)-wal was moved, removed or replaced while the server ran; \
            \(isSaved ? "all that it held is in the database now, and nothing is lost" : loss)
            """
        case .walCut: "the WAL \(database)-wal was cut while the server ran; \(loss)"
        case .lockRemoved:
            """
            the lock file beside \(database) was moved, removed or replaced while the server ran, so another server may use \
            the database now
            """
        }
    }
}

/// A file beside the database that has the next start check the database before the first write, as its pages may belong to
/// different commits.
///
/// While a part of the WAL is in the database, the database is sound only together with the WAL.
struct CheckMark {
    private let path: String

    init(of database: String) {
        path = Path.resolved(database) + DatabaseFileName.checkSuffix
    }

    var exists: Bool { FileStatus.exists(path) }

    func make() throws(StoreError) {
        try PrivateFile.create(path)
        try PrivateFile.synchronizeFolder(of: path)
    }

    /// After a crash it may still be there, and the database is checked once more.
    func remove() {
        try? PrivateFile.remove(path)
    }
}

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

/// The names of the files that a store consists of.
package enum DatabaseFileName {
    /// Of the database, in the data folder.
    package static let database = "tokens.db"
    /// Of the database's files in the data folder; some exist only while a server runs.
    package static let all = ["", "-wal", "-shm", checkSuffix].map { database + $0 }
    /// Of the file that `CheckMark` makes.
    static let checkSuffix = "-check"
}
