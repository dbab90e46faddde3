internal import CSQLite

/// Takes over the tokens of a database that an earlier version has written.
///
/// They are copied into a new file beside it, which is synced and then takes its place: a crash or a full disk leaves the
/// one or the other, whole. In a sealed store they are copied in the order of their slots, so that one page after the other
/// is filled; ten million take two minutes.
struct StoreConversion {
    private let file: DatabaseFile
    /// What is in the place of columns that came later.
    private let (expiresAt, keyNumber): (String, String)
    /// Reads the ring's identity, nothing in the clear, and the number of tokens.
    private let totals: String

    /// - Parameters:
    ///   - path: The database.
    ///   - version: Its own, from 1 to the one before this.
    init(_ path: String, from version: Int) {
        file = DatabaseFile(path: path)
        (expiresAt, keyNumber) = version == 1 ? ("NULL", "0") : ("expires_at", "key_number")
        totals =
            version == 1 ? "SELECT NULL, count(*) FROM old.token" : "SELECT key_ring, tokens FROM old.store"
    }

    func run() throws(StoreOpenError) {
        file.discardNew()
        defer { file.discardNew() }
        do throws(StoreError) {
            try PrivateFile.create(file.new)
            do throws(SQLiteError) {
                try copy()
            } catch {
                throw .write(error)
            }
            try PrivateFile.synchronize(file.new)
            try file.replace(erasing: false)
        } catch {
            throw .conversion(path: file.path, reason: "\(error)")
        }
    }

    private func copy() throws(SQLiteError) {
        let connection = try SQLiteConnection(path: file.new, mode: .readWrite)
        // Nobody sees the copy before it is complete and synced: what a crash leaves behind is thrown away.
        try connection.execute("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")
        try Schema.create(connection)
        try connection.execute("ATTACH '\(file.path.replacing("'", with: "''"))' AS old")
        try connection.execute("BEGIN; UPDATE main.store SET (key_ring, tokens) = (\(totals))")
        try copyRows(connection)
        try connection.execute("COMMIT; DETACH old")
    }

    private func copyRows(_ connection: SQLiteConnection) throws(SQLiteError) {
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
        while try select.step() {
            let key = select.blob(at: 1)
            let first: Int64
            do throws(SealingError) {
                // In a sealed store keys are hashes.
                first = isSealed ? Slots.first(of: key) : try clear.firstSlot(of: key)
            } catch {
                throw SQLiteError(code: SQLITE_ERROR, message: "\(error)", sql: "slot")
            }
            try insert.bind(Int64(select.integer(at: 0)), at: 2)
            try TokenTable.inFreeSlot(from: first) { (slot) throws(SQLiteError) in
                try insert.bind(slot, at: 1)
                try insert.run()
                return connection.changeCount > 0
            }
        }
        select.reset()
    }
}
