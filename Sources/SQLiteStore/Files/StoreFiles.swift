internal import Glibc
internal import System
internal import TokenStore

/// The files of an open store, and whether they are still the ones that the paths lead to.
///
/// The folder of a running server can be deleted or moved, or its disk removed. What is then written is lost, so the
/// paths are checked after each commit. An operator may also remove or truncate the WAL alone, mistaking it for a log
/// file.
///
/// Used by one thread at a time.
struct StoreFiles: ~Copyable {
    enum Finding {
        case inPlace
        /// The database is no longer where it was.
        case vanished
        /// The database is in its place, and its WAL is not.
        case walRemoved
        /// The WAL is shorter than what was written to it.
        case walCut
        /// The database is shorter than it was, and than its last commit says.
        case databaseCut
    }

    let directory: String
    let database: String
    /// Beside the database itself, even if a symbolic link leads to it.
    private(set) var wal: String
    private var identity: FileIdentity?
    private var walIdentity: FileIdentity?
    private var databaseSize: UInt64 = 0

    init(directory: String, database: String) {
        self.directory = directory
        self.database = database
        wal = database + "-wal"
    }

    /// Remembers the present files as the store's.
    ///
    /// - Parameter wal: The WAL that the writer has open; its path may lead to another file by now.
    mutating func adopt(wal: FileIdentity?) {
        self.wal = Path.resolved(database) + "-wal"
        let file = FileIdentity.find(database)
        identity = file?.identity
        databaseSize = file?.size ?? 0
        walIdentity = wal
    }

    /// Looks whether the paths lead to the files that were adopted.
    ///
    /// - Parameters:
    ///   - walSize: Bytes that the WAL has at least.
    ///   - databaseSize: Bytes of the database as of the last commit in the WAL, which a checkpoint may cut it to; nil when
    ///     there is none.
    mutating func look(walSize: Int, databaseSize: Int?) -> Finding {
        guard let identity, let found = FileIdentity.find(database), found.identity == identity else {
            return .vanished
        }
        guard found.size >= min(self.databaseSize, databaseSize.map(UInt64.init) ?? .max) else { return .databaseCut }
        self.databaseSize = found.size
        guard let file = FileIdentity.find(wal), file.identity == walIdentity else { return .walRemoved }
        return file.size < walSize ? .walCut : .inPlace
    }
}
