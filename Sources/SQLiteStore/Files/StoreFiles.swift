import Glibc
import System
import TokenStore

/// The files of an open store, and whether their paths still lead to them.
///
/// The folder of a running server can be deleted or moved, and an operator may remove or truncate the WAL, mistaking it
/// for a log. Everything written after that is lost, so the files are checked between each commit and its
/// acknowledgement. After such an accident nothing is repaired in place: the server ends, and its next start examines
/// what is left.
///
/// Used by one thread at a time.
struct StoreFiles {
    enum Accident {
        /// The database is not in its place any longer.
        case databaseRemoved
        /// The database is shorter than it was. It never gets smaller by itself, as its free pages stay in it.
        case databaseCut
        /// The database is in its place, but its WAL is not.
        case walRemoved
        /// The WAL is shorter than its content.
        case walCut
        /// Another process may have locked the store.
        case lockRemoved
    }

    private let directory: DataDirectory
    private let database: String
    private let wal: String
    private let identity: FileIdentity?
    private let walIdentity: FileIdentity?
    private var databaseSize: UInt64
    private var index: SQLiteConnection.WALIndex?

    /// Remembers the present files as those of the store.
    ///
    /// - Parameters:
    ///   - directory: The data folder.
    ///   - connection: Has the database and its WAL open.
    init(_ directory: DataDirectory, of connection: SQLiteConnection) {
        self.directory = directory
        database = connection.path
        wal = connection.path + "-wal"
        let file = try? FileIdentity.read(database)
        identity = file?.identity
        databaseSize = file?.size ?? 0
        // Not by its path, which may lead to another file by now.
        walIdentity = connection.wal?.identity
        index = connection.walIndex
    }

    /// Forgets the sizes of the files, until `accident` is called with an index again.
    mutating func forgetSizes() {
        (index, databaseSize) = (nil, 0)
    }

    /// Checks the database and its WAL; fails if their status cannot be read.
    ///
    /// - Parameter index: The WAL's index; nil if the database is closed, and the index is unchanged.
    mutating func accident(_ index: SQLiteConnection.WALIndex?) throws(SystemError) -> Accident? {
        if let index { self.index = index }
        guard let found = try Self.find(database), found.identity == identity else { return .databaseRemoved }
        guard found.size >= databaseSize else { return .databaseCut }
        databaseSize = found.size
        guard let file = try Self.find(wal), file.identity == walIdentity else { return .walRemoved }
        return file.size < self.index?.size ?? 0 ? .walCut : nil
    }

    /// Whether this process still has the lock of the folder that the path leads to.
    var isLocked: Bool { directory.isInPlace }

    /// Nil if there is no such file.
    private static func find(_ path: String) throws(SystemError) -> (identity: FileIdentity, size: UInt64)? {
        do {
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
    ///   - isSaved: Whether the database has everything that the WAL held.
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

/// A file beside the database that makes the next start check the database before the first write, because its pages
/// may belong to different commits.
///
/// While only a part of the WAL has been copied into the database, the database is sound only together with the WAL.
struct CheckRequest {
    private let path: String

    init(of database: String) {
        path = database + DatabaseFileName.checkSuffix
    }

    var exists: Bool { FileStatus.exists(path) }

    func make() throws(StoreError) {
        try PrivateFile.create(path)
        try PrivateFile.synchronizeFolder(of: path)
    }

    /// If a crash prevents this, the database is checked once more.
    func remove() {
        try? PrivateFile.remove(path)
    }
}

/// A data folder's database, and the new file that replaces it.
struct DatabaseFile {
    let path: String

    /// The database of a folder.
    ///
    /// It must not be a link: the folder's lock would not keep out a server of the folder to which the link leads.
    init(in directory: String) throws(SQLiteOpenError) {
        path = directory + "/" + DatabaseFileName.database
        for suffix in ["", "-wal", "-shm", "-journal"] where FollowedPath.isLink(path + suffix) {
            throw .directory(.link(.unexpected(path: path + suffix)))
        }
    }

    /// The path of the new file until it replaces the database.
    var new: String { path + ".new" }

    /// Removes the leftovers of an interrupted attempt; has no effect once the new file has its final name.
    func discardNew() { PrivateFile.discardDatabase(new) }

    /// Replaces the database by the new file, which must be complete and synced; no process may have the database open.
    ///
    /// If a crash comes before the former database's WAL is removed, the next start refuses that WAL, because it does
    /// not belong to the new database.
    func replace() throws(StoreError) {
        try PrivateFile.remove(path + "-journal")
        try PrivateFile.rename(new, to: path)
        for suffix in ["-wal", "-shm"] { try PrivateFile.remove(path + suffix) }
        try PrivateFile.synchronizeFolder(of: path)
        CheckRequest(of: path).remove()
    }
}

/// The names of the files that a store consists of.
package enum DatabaseFileName {
    /// The name of the database in the data folder.
    static let database = "tokens.db"
    /// The names of the database's files in the data folder; some exist only while a server runs.
    static let all = ["", "-wal", "-shm", checkSuffix].map { database + $0 }
    /// The suffix of the file that `CheckRequest` makes.
    static let checkSuffix = "-check"
    /// The suffix of the copy of a damaged WAL.
    static let damagedWALSuffix = "-wal.damaged"

    /// The path of the copy of a damaged WAL; nil if there is none.
    static func damagedCopy(of database: String) -> String? {
        FileStatus.exists(database + damagedWALSuffix) ? database + damagedWALSuffix : nil
    }
}
