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

    /// Some sessions in the order of their keys.
    func page(after key: [UInt8], limit: Int) throws(PostgresError) -> [StoredSession] {
        var parameters = Parameters()
        parameters.append(key)
        parameters.append(Int64(limit))
        return try session.run(
            "SELECT \(Statement.sessionColumns) FROM session WHERE key > $1::bytea ORDER BY key LIMIT $2::bigint",
            parameters, until: deadline
        ) { (result) throws(PostgresError) in (0..<result.rowCount).map { StoredSession(result, row: $0) } }
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
