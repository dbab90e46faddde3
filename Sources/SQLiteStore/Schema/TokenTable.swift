import CSQLite
import TokenStore

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
    private let sealRead: SQLiteStatement
    private let deleteRead: SQLiteStatement

    init(_ connection: SQLiteConnection) throws(SQLiteError) {
        self.connection = connection
        let isThere = "\(RowSlots.condition("?2")) AND key = ?1"
        let update = """
            UPDATE token SET value = ?3, written_at = ?4, expires_at = ?5, key_number = ?6, version = ?7
            WHERE \(isThere)
            """
        self.update = try SQLiteStatement(update, on: connection)
        updateUnlessNewer = try SQLiteStatement(update + " AND ?4 > written_at", on: connection)
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
        sealRead = try SQLiteStatement(
            "UPDATE token SET value = ?3, written_at = ?4, key_number = ?5 WHERE slot = ?1 AND version = ?2",
            on: connection)
        deleteRead = try SQLiteStatement("DELETE FROM token WHERE slot = ?1 AND version = ?2", on: connection)
    }

    // MARK: - Rows that were read before

    /// Gives a row a value that was sealed again, unless it was written since it was read; it keeps its version.
    func seal(
        _ row: (slot: Int64, version: TokenVersion, value: [UInt8], keyNumber: Int, writtenAt: Int64)
    ) throws(SQLiteError) {
        try sealRead.bind(row.slot, at: 1)
        try sealRead.bind(row.version.rawValue, at: 2)
        try sealRead.bind(row.writtenAt, at: 4)
        try sealRead.bind(Int64(row.keyNumber), at: 5)
        try sealRead.withBinding(row.value, at: 3) { () throws(SQLiteError) in _ = try sealRead.step() }
    }

    /// Removes a row, unless it was written since it was read; returns whether it was removed.
    func remove(_ slot: Int64, _ version: TokenVersion) throws(SQLiteError) -> Bool {
        try deleteRead.bind(slot, at: 1)
        try deleteRead.bind(version.rawValue, at: 2)
        try deleteRead.run()
        return connection.changeCount > 0
    }

    // MARK: - Rows of ids

    /// Replaces the row with the same key.
    ///
    /// - Returns: False if there is no such row, or if it must be kept as it is not older.
    func replace(_ row: Row, _ version: TokenVersion) throws(SQLiteError) -> Bool {
        try write(row, version, in: row.key.firstSlot, with: row.keepsNewer ? updateUnlessNewer : update)
    }

    /// Adds a row whose key is not in the table.
    func add(_ row: Row, _ version: TokenVersion) throws(SQLiteError) {
        let first = row.key.firstSlot
        for slot in first..<(first + RowSlots.count) where try write(row, version, in: slot, with: insert) { return }
        // Possible only in a manipulated file; an error of this row alone.
        throw SQLiteError(code: SQLITE_CONSTRAINT, message: "all slots for a row are taken")
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

/// A row of the table of tokens, as a statement that selects `columns` returns it.
struct StoredToken {
    let slot: Int64
    let key: [UInt8]
    /// The key that sealed the value.
    let keyNumber: Int
    let times: RowTimes
    let version: TokenVersion

    /// The columns in the text of a statement that tokens are read from.
    static let columns = "slot, key, key_number, written_at, expires_at, version, value"

    /// Reads all but the value of the current row of a statement that selects `columns`.
    init(_ select: SQLiteStatement) {
        slot = Int64(select.integer(at: 0))
        key = select.blob(at: 1)
        keyNumber = select.integer(at: 2)
        times = RowTimes(writtenAt: Int64(select.integer(at: 3)), expiresAt: select.optionalInteger(at: 4))
        version = TokenVersion(rawValue: Int64(select.integer(at: 5)))
    }

    /// Whether it is where its id is looked for.
    var isInPlace: Bool { RowSlots.contains(slot, from: RowKey(bytes: key).firstSlot) }

    /// Opens the token of the statement's current row.
    ///
    /// - Parameters:
    ///   - select: The statement that this was read from.
    ///   - coder: Has the store's keys.
    ///   - bytes: Increased by the number of the value's bytes.
    func token(
        of select: SQLiteStatement, _ coder: inout RowCoder, _ bytes: inout Int
    ) -> Result<Token, SealingError> {
        do throws(SealingError) {
            return .success(
                try select.withBlob(at: 6) { (value) throws(SealingError) in
                    bytes += value.count
                    guard isInPlace else { throw .misplaced }
                    return try coder.token(of: value, keyNumber: keyNumber, key: key, times: times)
                })
        } catch {
            return .failure(error)
        }
    }

    /// The same for a row in the clear.
    func clearToken(of select: SQLiteStatement, _ bytes: inout Int) -> Result<Token, SealingError> {
        let value = select.blob(at: 6)
        bytes += value.count
        return Result { () throws(SealingError) in try ClearRow.token(key: key, value: value) }
    }
}

/// The slots of the table of tokens, which are its rowids (INTEGER PRIMARY KEY).
///
/// A row lies in one of `count` consecutive slots, which begin at 38 bits of a keyed hash of its id. So one descent in
/// one B-tree finds it. Lookups compare the keys of all rows in these slots, so a freed slot needs no mark. In a store
/// of ten million tokens some 200 pairs share their first slot; for all 15 slots to be taken by chance, a store would
/// need some 10^12 tokens.
///
/// More bits would make the B-tree's inner pages larger (sqlite.org/fileformat2.html, section 1.6), and fewer of them
/// would fit into a reader's cache.
enum RowSlots {
    static let count: Int64 = 15

    /// The first slot of the rows with a hash; above 0.
    ///
    /// - Parameter prefix: The first 8 bytes of the hash; see `RowKey.hashPrefix`.
    static func first(of prefix: UInt64) -> Int64 {
        // Slots are in the order of the hashes, so that sorted rows are appended.
        Int64(prefix >> 26) << 4 | 1
    }

    /// Whether a row may lie in a slot.
    static func contains(_ slot: Int64, from first: Int64) -> Bool {
        slot >= first && slot - first < count
    }

    /// An SQL condition for the slots from a parameter on.
    static func condition(_ parameter: String) -> String {
        "slot BETWEEN \(parameter) AND \(parameter) + \(count - 1)"
    }
}

extension RowKey {
    /// The first slot that the row may lie in.
    var firstSlot: Int64 { RowSlots.first(of: hashPrefix) }
}
