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
}
#endif
