internal import CSQLite
internal import TokenStore

/// Converts a database of an earlier version.
///
/// The tokens are copied into a new file beside it, which is synced and then replaces it: a crash or a full disk leaves
/// one of the two complete. In a sealed store they are copied in the order of their slots, so that pages are filled one
/// after the other; ten million tokens take a minute or two.
struct SchemaConversion {
    private let file: DatabaseFile
    /// Expressions for columns that the earlier version lacks.
    private let (expiresAt, keyNumber): (String, String)
    /// Reads the ring's identity; nothing in the clear.
    private let ring: String
    private let reportInterval: Duration
    private let report: (_ copied: Int) -> Void

    /// - Parameters:
    ///   - path: The database.
    ///   - version: Its own, from 1 to the one before `Schema.firstInPlace`.
    ///   - reportInterval: Time between two reports.
    ///   - report: Called with the number of tokens copied so far.
    init(
        _ path: String, from version: Int, reportInterval: Duration = .seconds(5),
        report: @escaping (_ copied: Int) -> Void
    ) {
        file = DatabaseFile(path: path)
        (expiresAt, keyNumber) = version == 1 ? ("NULL", "0") : ("expires_at", "key_number")
        (self.reportInterval, self.report) = (reportInterval, report)
        ring = version == 1 ? "NULL" : "SELECT key_ring FROM old.store"
    }

    func run() throws(SQLiteOpenError) {
        file.discardNew()
        defer { file.discardNew() }
        do throws(StoreError) {
            try PrivateFile.create(file.new)
            do throws(SQLiteError) {
                // What is read may exist in the page cache only.
                try file.rewriteWAL()
                try copy()
            } catch {
                throw .write(StoreFault(error))
            }
            try PrivateFile.synchronize(file.new)
            try file.replace()
        } catch {
            throw .conversion(path: file.path, reason: "\(error)")
        }
    }

    private func copy() throws(SQLiteError) {
        let connection = try SQLiteConnection(path: file.new, mode: .readWrite)
        // The copy is not used before it is complete and synced; after a crash an incomplete one is discarded.
        try connection.prepareForBulkWriting()
        try PageSize.choose(for: connection)
        try Schema.create(connection)
        let attach = try SQLiteStatement("ATTACH CAST(?1 AS TEXT) AS old", on: connection)
        try attach.withBinding(Array(file.path.utf8), at: 1) { () throws(SQLiteError) in _ = try attach.step() }
        try connection.execute("BEGIN; UPDATE main.store SET key_ring = (\(ring))")
        let copied = try copyRows(connection)
        // A damaged index could have omitted some.
        guard try connection.integer("SELECT count(*) FROM old.token NOT INDEXED") == copied else {
            throw .damaged(Self.difference)
        }
        try connection.execute("UPDATE main.store SET tokens = \(copied); COMMIT")
    }

    private static let difference = "its table and its index do not hold the same tokens"

    /// Rows that are copied between two readings of the clock.
    static let rowsBetweenLooks = 1_024

    /// Returns how many there were.
    private func copyRows(_ connection: SQLiteConnection) throws(SQLiteError) -> Int {
        let isSealed = try connection.integer("SELECT key_ring IS NOT NULL FROM main.store") == 1
        var clear = RowCoder(Sealing(.clear(index: try Schema.slotKey(of: connection))))
        let select = try SQLiteStatement("SELECT rowid, key FROM old.token ORDER BY key", on: connection)
        let insert = try SQLiteStatement(
            """
            INSERT INTO main.token (slot, key, written_at, expires_at, key_number, value)
            SELECT ?1, key, written_at, \(expiresAt), \(keyNumber), value FROM old.token WHERE rowid = ?2
            ON CONFLICT (slot) DO NOTHING
            """,
            on: connection
        )
        let find = try SQLiteStatement("SELECT 1 FROM old.token WHERE rowid = ?1", on: connection)
        var copied = 0
        var nextReport = ContinuousClock.now + reportInterval
        while try select.step() {
            let (row, key) = (Int64(select.integer(at: 0)), select.blob(at: 1))
            let first: Int64
            do throws(SealingError) {
                // In a sealed store keys are hashes.
                first = isSealed ? RowSlots.first(of: RowKey.prefix(of: key)) : try clear.firstSlot(of: key)
            } catch {
                throw SQLiteError(code: SQLITE_ERROR, message: "\(error)", sql: "slot")
            }
            try insert.bind(row, at: 2)
            try TokenTable.inFreeSlot(from: first) { (slot) throws(SQLiteError) in
                try insert.bind(slot, at: 1)
                try insert.run()
                if connection.changeCount > 0 { return true }
                // The slot is taken, or there is no such row.
                defer { find.reset() }
                try find.bind(row, at: 1)
                guard try find.step() else { throw .damaged(Self.difference) }
                return false
            }
            copied += 1
            if copied.isMultiple(of: Self.rowsBetweenLooks), ContinuousClock.now >= nextReport {
                report(copied)
                nextReport += reportInterval
            }
        }
        return copied
    }
}
