#if PostgreSQL
internal import System
internal import TokenStore

/// Statements on the table `session` for administration.
///
/// Each belongs to one call of `PrimarySessions.perform`, whose deadline it gets.
struct SessionRows {
    private let session: BlockingSession
    private let deadline: MonotonicTime

    init(_ session: BlockingSession, until deadline: MonotonicTime) {
        self.session = session
        self.deadline = deadline
    }

    private static let columns = "key, id, user_key, number, created_at, expires_at, used_at, key_number, user_value"

    private func rows(_ condition: String, _ parameters: Parameters) throws(PostgresError) -> [StoredSession] {
        try session.run(
            "SELECT \(Self.columns) FROM session WHERE \(condition)", parameters, until: deadline
        ) { (result) throws(PostgresError) in
            (0..<result.rowCount).map { row in
                StoredSession(
                    key: result.bytes(row, 0), id: result.bytes(row, 1), userKey: result.bytes(row, 2),
                    keyNumber: Int(result.integer(row, 7)), user: result.bytes(row, 8),
                    createdAt: result.integer(row, 4), expiresAt: result.integer(row, 5),
                    usedAt: result.integer(row, 6), number: result.integer(row, 3))
            }
        }
    }

    // MARK: - Reading

    /// Some sessions in the order of their keys.
    func page(after key: [UInt8], limit: Int) throws(PostgresError) -> [StoredSession] {
        var parameters = Parameters()
        parameters.append(key)
        parameters.append(Int64(limit))
        return try rows("key > $1::bytea ORDER BY key LIMIT $2::bigint", parameters)
    }

    func rows(of keys: [[UInt8]]) throws(PostgresError) -> [StoredSession] {
        var parameters = Parameters()
        parameters.append(keys)
        return try rows("key = ANY ($1::bytea[])", parameters)
    }

    /// The session with an id; nil if there is none.
    func row(of id: SessionID) throws(PostgresError) -> StoredSession? {
        var parameters = Parameters()
        parameters.append(id.bytes)
        return try rows("id = $1::bytea", parameters).first
    }

    /// The sessions of a user that have not expired, the oldest first.
    ///
    /// - Parameter now: In seconds since 1970.
    func rows(ofUser userKey: [UInt8], at now: Int64) throws(PostgresError) -> [StoredSession] {
        var parameters = Parameters()
        parameters.append(userKey)
        parameters.append(now)
        return try rows("user_key = $1::bytea AND expires_at > $2::bigint ORDER BY number", parameters)
    }

    /// How many sessions a user has, also expired ones.
    func count(ofUser userKey: [UInt8]) throws(PostgresError) -> Int {
        var parameters = Parameters()
        parameters.append(userKey)
        return try session.run(
            "SELECT count(*) FROM session WHERE user_key = $1::bytea", parameters, until: deadline
        ) { (result) throws(PostgresError) in Int(result.integer(0, 0)) }
    }

    // MARK: - Changing, in a transaction of the caller's

    /// Adds sessions; those that are there stay as they are.
    func add(_ rows: [StoredSession]) throws(PostgresError) {
        var parameters = Parameters()
        parameters.append(rows.map(\.key))
        parameters.append(rows.map(\.id))
        parameters.append(rows.map(\.userKey))
        parameters.append(rows.map(\.number))
        parameters.append(rows.map(\.createdAt))
        parameters.append(rows.map(\.expiresAt))
        parameters.append(rows.map(\.usedAt))
        parameters.append(rows.map { Int64($0.keyNumber) })
        parameters.append(rows.map(\.user))
        try session.run(
            """
            INSERT INTO session (\(Self.columns))
            SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bigint[],
            $7::bigint[], $8::bigint[], $9::bytea[])
            ON CONFLICT (key) DO NOTHING
            """, parameters, until: deadline)
    }

    /// Replaces what another key has sealed of a session, if the session is still there.
    ///
    /// - Parameters:
    ///   - row: The session, sealed again.
    ///   - former: The number of the key that had sealed it.
    func replaceUser(of row: SessionRow, sealedWith former: Int) throws(PostgresError) {
        var parameters = Parameters()
        parameters.append(row.key)
        parameters.append(Int64(row.keyNumber))
        parameters.append(row.user)
        parameters.append(Int64(former))
        try session.run(
            """
            UPDATE session SET key_number = $2::bigint, user_value = $3::bytea
            WHERE key = $1::bytea AND key_number = $4::bigint
            """, parameters, until: deadline)
    }

    /// Notes that a session was used.
    func noteUse(of key: [UInt8], at time: Int64) throws(PostgresError) {
        var parameters = Parameters()
        parameters.append(key)
        parameters.append(time)
        try session.run(
            "UPDATE session SET used_at = $2::bigint WHERE key = $1::bytea AND used_at < $2::bigint", parameters,
            until: deadline)
    }

    /// The keys of a user's sessions, except the newest ones.
    ///
    /// - Parameter count: How many are left out.
    func keys(ofUser userKey: [UInt8], exceptNewest count: Int) throws(PostgresError) -> [[UInt8]] {
        var parameters = Parameters()
        parameters.append(userKey)
        parameters.append(Int64(count))
        return try session.run(
            "SELECT key FROM session WHERE user_key = $1::bytea ORDER BY number DESC OFFSET $2::bigint", parameters,
            until: deadline
        ) { (result) throws(PostgresError) in (0..<result.rowCount).map { result.bytes($0, 0) } }
    }

    /// Removes the sessions with some keys; returns how many there were.
    func remove(_ keys: [[UInt8]]) throws(PostgresError) -> Int {
        guard !keys.isEmpty else { return 0 }
        var parameters = Parameters()
        parameters.append(keys)
        return try delete("key = ANY ($1::bytea[])", parameters)
    }

    /// Removes all sessions of a user; returns how many there were.
    func remove(ofUser userKey: [UInt8]) throws(PostgresError) -> Int {
        var parameters = Parameters()
        parameters.append(userKey)
        return try delete("user_key = $1::bytea", parameters)
    }

    private func delete(_ condition: String, _ parameters: Parameters) throws(PostgresError) -> Int {
        try session.run("DELETE FROM session WHERE \(condition)", parameters, until: deadline) {
            (result) throws(PostgresError) in result.changedCount
        }
    }
}
#endif
