import System
import TokenStore

/// Reads all rows of a SQLite store, in the order in which they lie in its file.
final class SQLiteCopySource: CopySource {
    let count: CopyCount
    let moment: Int64? = nil
    let versionLimit: Int64
    let clockLook: Int64?
    let isBackup: Bool
    private let rows: OpenedRows
    private var hasDamagedPages = false

    /// Rows of a batch, and bytes of values after which it ends.
    private static let (batch, batchBytes) = (1_000, 4 << 20)

    /// Opens the store of a data folder, and leaves it unchanged.
    ///
    /// - Parameters:
    ///   - directory: The folder, locked.
    ///   - options: Name the key ring.
    convenience init(in directory: DataDirectory, options: StoreOptions) throws(SQLiteOpenError) {
        let path = try DatabaseFile(in: directory.path).path
        let (connection, ring) = try StoreOpener(
            directory: directory.path, database: path, options: options
        ).openForReading()
        do {
            try self.init(connection, ring.map(Sealing.init))
        } catch {
            throw .database(path: path, error)
        }
    }

    /// - Parameter sealing: Nil if the rows are not encrypted.
    init(_ connection: SQLiteConnection, _ sealing: Sealing?) throws(SQLiteError) {
        count = try Schema.counts(of: connection)
        versionLimit = try Schema.versionLimit(of: connection)
        clockLook = try Schema.clockLook(of: connection)
        isBackup = try BackupFile.isOne(connection)
        rows = try OpenedRows(connection, sealing)
    }

    var unreadable: [String: Int] {
        var unreadable = rows.report.unreadable
        if hasDamagedPages {
            // Only the store's own count tells how many rows were on them.
            let lost = max(1, count.total - rows.report.tokens - rows.report.sessions)
            unreadable["pages of the database are damaged"] = lost
        }
        return unreadable
    }

    func next() throws(StoreError) -> [CopiedRow] {
        try StoreError.reading { () throws(SQLiteError) in
            var batch: [CopiedRow] = []
            let end = rows.valueBytes + Self.batchBytes
            while batch.count < Self.batch, rows.valueBytes < end || batch.isEmpty,
                let row = try rows.nextReadable({ _ in hasDamagedPages = true })
            {
                switch row {
                case .token(let row, .success(let token)): batch.append(.token(token, row.times, row.version))
                case .session(let row, .success(let opened)): batch.append(.session(opened, number: row.number))
                // Counted by `rows`.
                case .token, .session: break
                }
            }
            return batch
        }
    }
}

/// Makes a SQLite store from the rows of another store, in a file that is renamed when it is complete.
///
/// The slot of a row is a keyed hash, and two stores have different keys. So rows arrive in random order: written at
/// once, nearly each would change a different page. Instead they go into a temporary table, which SQLite sorts by slots
/// as it does for an index; then they fill one page after the other.
final class SQLiteCopyTarget: CopyTarget {
    private let database: DatabaseFile
    private let writer: WriterConnection
    private let sealing: Sealing
    private let arrive: SQLiteStatement
    private var tokenCount = 0

    /// For tests.
    var connection: SQLiteConnection { writer.connection }

    /// - Parameters:
    ///   - directory: The data folder, locked, without a store.
    ///   - options: Those of the server that will use the store.
    init(in directory: DataDirectory, options: StoreOptions) throws(SQLiteOpenError) {
        func refusal(_ reason: String) -> SQLiteOpenError { .shared(.store(StoreFault(reason))) }
        database = try DatabaseFile(in: directory.path)
        for path in [database.path, database.path + "-wal"] where FileStatus.exists(path) {
            throw refusal(
                """
                there is a store already (\(path)), and rows are copied into an empty folder only; name another one, or \
                move that store away
                """)
        }
        database.discardNew()
        do {
            try PrivateFile.create(database.new)
        } catch {
            throw refusal("\(error)")
        }
        var options = options
        // Limits are for new ids.
        options.byteLimit = nil
        // For the files in which rows are sorted: the disk of /tmp may be small.
        let folder = Path.folder(of: database.path).replacing("'", with: "''")
        let opener = StoreOpener(directory: directory.path, database: database.new, options: options)
        let opened = try opener.open(.readWrite)
        (writer, sealing) = (opened.writer, opened.sealing)
        arrive = try Schema.opening(database.new) { () throws(SQLiteError) in
            let connection = opened.writer.connection
            try connection.giveUpSafety()
            try connection.execute("PRAGMA temp_store_directory = '\(folder)'; \(Self.arrivals)")
            return try SQLiteStatement("INSERT INTO arrival VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)", on: connection)
        }
    }

    /// Beyond 32 MiB the table is in a file, which SQLite unlinks as soon as it has created it.
    private static let arrivals = """
        PRAGMA main.cache_size = -65536;
        PRAGMA temp.cache_size = -32768;
        CREATE TEMP TABLE arrival (first_slot INTEGER, key BLOB, written_at INTEGER, expires_at INTEGER,
            key_number INTEGER, version INTEGER, value BLOB)
        """

    /// Rows whose hashes begin alike lie one after the other, in slots that no other row has as its first one (see `RowSlots`).
    ///
    /// The temporary table goes with its connection. To drop it, SQLite would overwrite each of its pages.
    private static let order = """
        INSERT INTO token (slot, key, written_at, expires_at, key_number, version, value)
        SELECT first_slot + row_number() OVER (PARTITION BY first_slot) - 1, key, written_at, expires_at, key_number,
            version, value
        FROM arrival
        """

    func add(_ rows: [CopiedRow]) throws(StoreError) {
        let (tokens, sessions) = try writer.coder.rows(of: rows)
        try StoreError.writing { () throws(SQLiteError) in
            try writer.transaction { () throws(SQLiteError) in
                for (row, version) in tokens { try arrive(row, version) }
                for row in sessions { try writer.sessions.add(row) }
                writer.sessionCount += sessions.count
            }
        }
        tokenCount += tokens.count
    }

    private func arrive(_ row: Row, _ version: TokenVersion) throws(SQLiteError) {
        try arrive.bind(row.key.firstSlot, at: 1)
        try arrive.bind(row.key.bytes, at: 2)
        try arrive.bind(row.times.writtenAt, at: 3)
        try arrive.bind(row.times.expiresAt, at: 4)
        try arrive.bind(Int64(row.keyNumber), at: 5)
        try arrive.bind(version.rawValue, at: 6)
        try arrive.withBinding(row.value, at: 7) { () throws(SQLiteError) in _ = try arrive.step() }
    }

    func reread() throws(StoreError) -> any CopySource {
        try StoreError.writing { () throws(SQLiteError) in
            try writer.transaction { () throws(SQLiteError) in
                try writer.connection.execute(Self.order)
                writer.tokenCount = tokenCount
            }
            return try SQLiteCopySource(writer.connection, sealing)
        }
    }

    func finish(versionLimit: Int64, clockLook: Int64?) throws(StoreError) {
        try StoreError.writing { () throws(SQLiteError) in
            try Schema.raiseVersionLimit(versionLimit, in: writer.connection)
            // Otherwise the new store would trust a clock that is wrong now.
            if let clockLook { try writer.saveClockLook(clockLook) }
        }
        try PrivateFile.synchronize(database.new)
        // It may be left from a database that was moved away.
        CheckRequest(of: database.path).remove()
        try PrivateFile.rename(database.new, to: database.path)
    }

    func abandon() { database.discardNew() }
}

extension StoreOpener {
    /// Opens a store for reading only.
    ///
    /// - Returns: The connection, and the key ring; nil if the rows are not encrypted.
    fileprivate func openForReading() throws(SQLiteOpenError) -> (connection: SQLiteConnection, ring: KeyRing?) {
        // As in `open`: SQLite would delete the WAL of an empty database.
        guard FileStatus.size(of: database) > 1 else {
            throw FileStatus.size(of: database + "-wal") > 0
                ? .emptied(path: database) : .notADatabase(path: database, .damaged("it is empty"))
        }
        let (connection, _) = try connect(.readWrite)
        if checkRequest.exists {
            do {
                try connection.checkForMixedPages()
            } catch {
                // Rows that cannot be found would be missing in the copy.
                throw .notADatabase(path: database, error)
            }
        }
        let isSealed = try !ringIdentity(in: connection).identity.isEmpty
        return (connection, isSealed ? try presentRing(of: connection) : nil)
    }
}
