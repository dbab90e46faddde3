#if PostgreSQL
internal import System
internal import TokenStore

/// A row of the table `token` as it lies there.
struct StoredToken: Sendable {
    let key: [UInt8]
    let version: TokenVersion
    let times: RowTimes
    let keyNumber: Int
    /// Nil for a token that was removed; `times.writtenAt` then says when.
    let value: [UInt8]?

    func token(_ coder: inout RowCoder) throws(SealingError) -> Token {
        guard let value else { throw .malformed }
        return try coder.token(of: value.span, keyNumber: keyNumber, key: key, times: times)
    }
}

/// Statements on the table `token` for administration, some rows at a time.
///
/// Each belongs to one call of `PrimarySessions.perform`, whose deadline it gets.
struct TokenRows {
    private let session: BlockingSession
    private let deadline: MonotonicTime

    init(_ session: BlockingSession, until deadline: MonotonicTime) {
        self.session = session
        self.deadline = deadline
    }

    private static let columns = "key, version, written_at, expires_at, key_number, value"

    private static func row(_ result: borrowing QueryResult, _ row: Int) -> StoredToken {
        StoredToken(
            key: result.bytes(row, 0), version: TokenVersion(rawValue: result.integer(row, 1)),
            times: RowTimes(writtenAt: result.integer(row, 2), expiresAt: result.optionalInteger(row, 3)),
            keyNumber: Int(result.integer(row, 4)), value: result.isNull(row, 5) ? nil : result.bytes(row, 5))
    }

    private func rows(_ sql: String, _ parameters: Parameters) throws(PostgresError) -> [StoredToken] {
        try session.run(sql, parameters, until: deadline) { (result) throws(PostgresError) in
            (0..<result.rowCount).map { Self.row(result, $0) }
        }
    }

    // MARK: - Reading

    /// Bytes of values of a page, beyond which it has fewer rows than asked for.
    static let pageBytes = 4 << 20

    /// Some tokens in the order of their keys.
    ///
    /// - Parameters:
    ///   - key: The key after which to begin; empty for the beginning.
    ///   - limit: How many rows to return at most; fewer are returned when they are large.
    func page(after key: [UInt8], limit: Int) throws(PostgresError) -> (rows: [StoredToken], isLast: Bool) {
        // Their sizes first, as libpq would keep all of a thousand large tokens in memory.
        var parameters = Parameters()
        parameters.append(key)
        // One more than asked for, to know whether there is a next page.
        parameters.append(Int64(limit) + 1)
        let (last, count, isLast) = try session.run(
            """
            SELECT key, octet_length(value) FROM token WHERE key > $1::bytea AND value IS NOT NULL
            ORDER BY key LIMIT $2::bigint
            """, parameters, until: deadline
        ) { (result) throws(PostgresError) in
            var (count, bytes) = (0, 0)
            while count < min(limit, result.rowCount), bytes < Self.pageBytes {
                bytes += Int(result.integer(count, 1))
                count += 1
            }
            return (count == 0 ? [] : result.bytes(count - 1, 0), count, count == result.rowCount)
        }
        guard count > 0 else { return ([], true) }
        parameters.removeAll()
        parameters.append(key)
        parameters.append(last)
        // More only if others were stored in between, which the listing need not have.
        parameters.append(Int64(count))
        let rows = try rows(
            """
            SELECT \(Self.columns) FROM token WHERE key > $1::bytea AND key <= $2::bytea AND value IS NOT NULL
            ORDER BY key LIMIT $3::bigint
            """, parameters)
        return (rows, isLast)
    }

    /// How many tokens there are, though at most a limit.
    func count(upTo limit: Int?) throws(PostgresError) -> Int {
        let limited = limit.map { " LIMIT \($0)" } ?? ""
        return try integer("SELECT count(*) FROM (SELECT 1 FROM token WHERE value IS NOT NULL\(limited)) AS counted")
    }

    private func integer(_ sql: String, _ parameters: Parameters = Parameters()) throws(PostgresError) -> Int {
        try session.run(sql, parameters, until: deadline) { (result) throws(PostgresError) in
            Int(result.integer(0, 0))
        }
    }

    // MARK: - Writing

    /// Replaces the values of rows, which another key has sealed, unless a later write has; in a transaction of the caller's.
    ///
    /// - Parameter rows: With the versions that they had when they were read.
    func replaceSeals(of rows: [StoredToken]) throws(PostgresError) {
        var keys = Parameters()
        keys.append(rows.map(\.key))
        // Locked in the order of their keys, as by all who write several rows.
        try session.run(
            "SELECT 1 FROM token WHERE key = ANY ($1::bytea[]) ORDER BY key FOR UPDATE", keys, until: deadline)
        var parameters = keys
        parameters.append(rows.map(\.version.rawValue))
        parameters.append(rows.map { Int64($0.keyNumber) })
        parameters.append(rows.map(\.value))
        try session.run(
            """
            UPDATE token SET key_number = sealed.key_number, value = sealed.value
            FROM unnest($1::bytea[], $2::bigint[], $3::bigint[], $4::bytea[]) AS sealed (key, version, key_number, value)
            WHERE token.key = sealed.key AND token.version = sealed.version AND token.value IS NOT NULL
            """, parameters, until: deadline)
    }
}

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
