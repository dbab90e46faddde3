import TokenStore

/// The table of sessions, as the writer's connection changes it, in transactions that its caller begins and ends.
///
/// Used on its connection's thread.
final class SessionTable {
    private let connection: SQLiteConnection
    private let insert: SQLiteStatement
    private let selectByID: SQLiteStatement
    private let selectByUser: SQLiteStatement
    private let selectCurrent: SQLiteStatement
    private let noteUse: SQLiteStatement
    private let delete: SQLiteStatement
    private let deleteUnused: SQLiteStatement
    private let updateUser: SQLiteStatement

    init(_ connection: SQLiteConnection) throws(SQLiteError) {
        func statement(_ sql: String) throws(SQLiteError) -> SQLiteStatement {
            try SQLiteStatement(sql, on: connection)
        }
        self.connection = connection
        let all = "SELECT \(SessionRow.columns) FROM session WHERE"
        insert = try statement(
            """
            INSERT INTO session (key, id, user_key, number, created_at, expires_at, used_at, key_number, user)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
            """
        )
        selectByID = try statement("\(all) id = ?1")
        // All but the ?2 newest ones.
        selectByUser = try statement("\(all) user_key = ?1 ORDER BY number DESC LIMIT -1 OFFSET ?2")
        selectCurrent = try statement("SELECT 1 FROM session WHERE key = ?1 AND expires_at > ?2")
        noteUse = try statement("UPDATE session SET used_at = ?2 WHERE key = ?1 AND used_at < ?2")
        deleteUnused = try statement("DELETE FROM session WHERE key = ?1 AND used_at = ?2")
        updateUser = try statement("UPDATE session SET user = ?2, key_number = ?3 WHERE key = ?1")
        delete = try statement("DELETE FROM session WHERE key = ?1")
    }

    func add(_ row: SessionRow) throws(SQLiteError) {
        for (index, bytes) in [(1, row.key), (2, row.id), (3, row.userKey), (9, row.user)] as [(Int32, [UInt8])] {
            try insert.bind(bytes, at: index)
        }
        try insert.bind(row.number, at: 4)
        try insert.bind(row.createdAt, at: 5)
        try insert.bind(row.expiresAt, at: 6)
        try insert.bind(row.usedAt, at: 7)
        try insert.bind(Int64(row.keyNumber), at: 8)
        try insert.run()
    }

    /// Whether a session is there and has not expired.
    func isCurrent(_ key: [UInt8], at now: Int64) throws(SQLiteError) -> Bool {
        try selectCurrent.bind(now, at: 2)
        return try selectCurrent.withBinding(key, at: 1) { () throws(SQLiteError) in try selectCurrent.step() }
    }

    func noteUse(of key: [UInt8], at time: Int64) throws(SQLiteError) {
        try noteUse.bind(time, at: 2)
        try noteUse.withBinding(key, at: 1) { () throws(SQLiteError) in _ = try noteUse.step() }
    }

    /// Gives a session a user that was sealed again.
    func seal(_ row: (key: [UInt8], user: [UInt8], keyNumber: Int)) throws(SQLiteError) {
        try updateUser.bind(row.key, at: 1)
        try updateUser.bind(row.user, at: 2)
        try updateUser.bind(Int64(row.keyNumber), at: 3)
        try updateUser.run()
    }

    /// Removes the session with an id; nil if there is none.
    func remove(id: SessionID) throws(SQLiteError) -> SessionRow? {
        try selectByID.bind(id.bytes, at: 1)
        return try remove(rows(of: selectByID)).first
    }

    /// Removes the sessions of a user, except the newest ones.
    ///
    /// - Parameter count: How many stay.
    func remove(userKey: [UInt8], exceptNewest count: Int = 0) throws(SQLiteError) -> [SessionRow] {
        try selectByUser.bind(userKey, at: 1)
        try selectByUser.bind(Int64(count), at: 2)
        return try remove(rows(of: selectByUser))
    }

    /// Removes sessions that were not used since they were read.
    ///
    /// - Returns: Those that were removed.
    func removeUnused(_ rows: [SessionRow]) throws(SQLiteError) -> [SessionRow] {
        var removed: [SessionRow] = []
        for row in rows {
            try deleteUnused.bind(row.key, at: 1)
            try deleteUnused.bind(row.usedAt, at: 2)
            try deleteUnused.run()
            if connection.changeCount > 0 { removed.append(row) }
        }
        return removed
    }

    private func rows(of select: SQLiteStatement) throws(SQLiteError) -> [SessionRow] {
        defer { select.reset() }
        var rows: [SessionRow] = []
        while try select.step() { rows.append(SessionRow(select)) }
        return rows
    }

    @discardableResult
    func remove(_ rows: [SessionRow]) throws(SQLiteError) -> [SessionRow] {
        for row in rows {
            try delete.bind(row.key, at: 1)
            try delete.run()
        }
        return rows
    }
}

/// A session's row in the table `session`.
extension SessionRow {
    /// The columns in the text of a statement that sessions are read from.
    static let columns = "key, id, user_key, key_number, created_at, expires_at, used_at, number, user"

    /// Reads the current row of a statement that selects `columns`.
    init(_ select: SQLiteStatement) {
        self.init(bytes: { select.blob(at: Int32($0)) }, number: { Int64(select.integer(at: Int32($0))) })
    }
}
