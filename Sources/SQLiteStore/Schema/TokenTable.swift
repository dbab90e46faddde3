internal import CSQLite
internal import TokenStore

/// The table of tokens, as the writer's connection changes it.
///
/// Used on its connection's thread.
final class TokenTable {
    private let connection: SQLiteConnection
    private let update: SQLiteStatement
    private let updateUnlessNewer: SQLiteStatement
    private let insert: SQLiteStatement
    private let delete: SQLiteStatement
    private let select: SQLiteStatement

    init(_ connection: SQLiteConnection) throws(SQLiteError) {
        self.connection = connection
        let isThere = "\(RowSlots.condition("?2")) AND key = ?1"
        let update = """
            UPDATE token SET value = ?3, written_at = ?4, expires_at = ?5, key_number = ?6, version = ?7
            WHERE \(isThere)
            """
        self.update = try SQLiteStatement(update, on: connection)
        updateUnlessNewer = try SQLiteStatement(update + " AND ?4 >= written_at", on: connection)
        insert = try SQLiteStatement(
            """
            INSERT INTO token (key, slot, value, written_at, expires_at, key_number, version)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
            ON CONFLICT (slot) DO NOTHING
            """,
            on: connection
        )
        delete = try SQLiteStatement("DELETE FROM token WHERE \(isThere)", on: connection)
        select = try SQLiteStatement(
            "SELECT version, written_at, expires_at FROM token WHERE \(isThere)", on: connection)
    }

    /// Replaces the row with the same key.
    ///
    /// - Returns: False if there is no such row, or if it is newer and must be kept.
    func replace(_ row: Row, _ version: TokenVersion) throws(SQLiteError) -> Bool {
        try write(row, version, in: row.key.firstSlot, with: row.keepsNewer ? updateUnlessNewer : update)
    }

    /// Adds a row whose key is not in the table.
    func add(_ row: Row, _ version: TokenVersion) throws(SQLiteError) {
        try Self.inFreeSlot(from: row.key.firstSlot) { (slot) throws(SQLiteError) in
            try write(row, version, in: slot, with: insert)
        }
    }

    /// Tries the slots that a row may lie in, one after the other.
    ///
    /// - Parameters:
    ///   - first: The first of these slots.
    ///   - add: Adds the row in a slot; returns false if the slot is taken.
    static func inFreeSlot(
        from first: Int64, _ add: (_ slot: Int64) throws(SQLiteError) -> Bool
    ) throws(SQLiteError) {
        for slot in first...(first + (RowSlots.count - 1)) where try add(slot) { return }
        // Possible only in a manipulated file; an error of this row alone.
        throw SQLiteError(code: SQLITE_CONSTRAINT, message: "all slots for a row are taken", sql: "INSERT INTO token")
    }

    /// The version and the times of the row with a key; nil if there is none.
    func find(_ key: RowKey) throws(SQLiteError) -> (version: TokenVersion, times: RowTimes)? {
        try select.bind(key.firstSlot, at: 2)
        return try select.withBinding(key.bytes, at: 1) { () throws(SQLiteError) in
            guard try select.step() else { return nil }
            let times = RowTimes(writtenAt: Int64(select.integer(at: 1)), expiresAt: select.optionalInteger(at: 2))
            return (TokenVersion(rawValue: Int64(select.integer(at: 0))), times)
        }
    }

    /// Removes the row with a key; false when there is none.
    func remove(_ key: RowKey) throws(SQLiteError) -> Bool {
        try delete.bind(key.firstSlot, at: 2)
        try delete.withBinding(key.bytes, at: 1) { () throws(SQLiteError) in _ = try delete.step() }
        return connection.changeCount > 0
    }

    private func write(
        _ row: Row, _ version: TokenVersion, in slot: Int64, with statement: SQLiteStatement
    ) throws(SQLiteError) -> Bool {
        try statement.bind(slot, at: 2)
        try statement.bind(row.times.writtenAt, at: 4)
        try statement.bind(row.times.expiresAt, at: 5)
        try statement.bind(Int64(row.keyNumber), at: 6)
        try statement.bind(version.rawValue, at: 7)
        try statement.withBinding(row.key.bytes, at: 1) { () throws(SQLiteError) in
            try statement.withBinding(row.value, at: 3) { () throws(SQLiteError) in
                _ = try statement.step()
            }
        }
        return connection.changeCount > 0
    }
}
