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
}
#endif
