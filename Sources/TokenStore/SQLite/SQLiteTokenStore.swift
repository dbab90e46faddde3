internal import CSQLite
internal import Glibc
internal import Synchronization

/// Token infos in one SQLite database: any number of readers, one writer.
///
/// WAL with `synchronous=FULL`: a commit is on disk when it returns. All commits and checkpoints go through the writer's
/// one connection. SQLite 3.7.0 to 3.51.2 can lose an acknowledged commit when two connections commit or checkpoint at
/// the same instant (the WAL-reset bug, sqlite.org/wal.html), so readers never checkpoint, not even on closing, and the
/// folder's lock keeps other processes out.
package final class SQLiteTokenStore: TokenStore {
    package static let fileName = "tokens.db"

    /// Locked until `close`.
    private let lock: Mutex<DataDirectory?>
    private let directory: String
    private let path: String
    private let writer: SQLiteWriter

    /// Opens the store of a data directory, creating both if they are missing.
    package init(directory path: String) throws(StoreOpenError) {
        // Before any connection opens; the result only says that one already has, in which case the setting stands.
        _ = csqlite_disable_memory_statistics()
        lock = Mutex(try DataDirectory(path: path))
        directory = path
        self.path = path + "/" + Self.fileName
        try Self.createPrivateFile(self.path, directory: path)
        let file = self.path
        let connection = try Schema.opening(file) { () throws(SQLiteError) in
            try SQLiteConnection(path: file, mode: .readWriteCreate)
        }
        let version = try Schema.check(connection, path: file)
        writer = try Schema.opening(file) { () throws(SQLiteError) in
            try Self.configure(connection)
            try Schema.migrate(connection, from: version)
            return try SQLiteWriter(connection)
        }
    }

    /// SQLite gives the `-wal` and `-shm` files the mode of the database, so this one is created before SQLite does.
    private static func createPrivateFile(_ path: String, directory: String) throws(StoreOpenError) {
        let descriptor = unsafe open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else {
            throw .directory(path: directory, call: "open \(path)", reason: unsafe String(cString: strerror(errno)))
        }
        _ = Glibc.close(descriptor)
        DataDirectory.synchronize(directory)
    }

    private static func configure(_ connection: SQLiteConnection) throws(SQLiteError) {
        // Nobody else has the database open; a wait would only hide that.
        try connection.execute("PRAGMA busy_timeout = 0")
        // Counted in pages of 4 KiB: a page that is written often reaches the database once in 16 MiB of log.
        try connection.execute("PRAGMA wal_autocheckpoint = 4096")
        let mode = try connection.text("PRAGMA journal_mode = WAL")
        guard mode == "wal" else {
            throw SQLiteError(code: SQLITE_IOERR, message: "the file system does not support WAL", sql: "journal_mode")
        }
        try connection.execute("PRAGMA synchronous = FULL")
        // A log that grew in a rush is cut back to this at the next checkpoint.
        try connection.execute("PRAGMA journal_size_limit = 67108864")
    }

    package var summary: String { "SQLite \(SQLiteConnection.libraryVersion) in \(directory)" }

    package func makeSession(
        deliver: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void
    ) throws(StoreError) -> any TokenSession {
        do throws(SQLiteError) {
            return try SQLiteSession(path: path, writer: writer, deliver: deliver)
        } catch {
            throw .read(error)
        }
    }

    package func close() {
        writer.close()
        // Only now: until the last commit nobody else may open the file.
        lock.withLock { $0 = nil }
    }
}
