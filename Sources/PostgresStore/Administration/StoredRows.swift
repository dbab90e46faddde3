#if PostgreSQL
import Cryptography
import TokenStore

/// A row of the table `token`.
struct StoredToken: Sendable {
    let key: [UInt8]
    let version: TokenVersion
    let times: RowTimes
    let keyNumber: Int
    /// Nil for a removed token; then `times.writtenAt` is the time of its removal.
    let value: [UInt8]?

    func token(_ coder: inout RowCoder) throws(SealingError) -> Token {
        guard let value else { throw .malformed }
        return try coder.token(of: value.span, keyNumber: keyNumber, key: key, times: times)
    }

    /// How many bytes of values a page may have; it ends with the value that exceeds them.
    static let pageBytes = 4 << 20

    init(_ result: borrowing QueryResult, row: Int) {
        key = result.bytes(row, 0)
        version = TokenVersion(rawValue: result.integer(row, 1))
        times = RowTimes(writtenAt: result.integer(row, 2), expiresAt: result.optionalInteger(row, 3))
        keyNumber = Int(result.integer(row, 4))
        value = result.isNull(row, 5) ? nil : result.bytes(row, 5)
    }
}

/// A row of the table `token` or `session`.
enum StoredRow: Sendable {
    case token(StoredToken)
    case session(SessionRow)

    var keyNumber: Int {
        switch self {
        case .token(let row): row.keyNumber
        case .session(let row): row.keyNumber
        }
    }

    /// A name for operators: a token's key as the database shows it, which in a sealed store is a hash, or a session's id.
    var name: String {
        switch self {
        case .token(let row): "the token with the key \\x\(Hexadecimal.text(row.key))"
        case .session(let row): "the session \(Base64URL.encode(row.id.span))"
        }
    }

    func opened(_ coder: inout RowCoder) throws(SealingError) -> CopiedRow {
        switch self {
        case .token(let row): .token(try row.token(&coder), row.times, row.version)
        case .session(let row): .session(try coder.open(row), number: row.number)
        }
    }
}

extension [StoredRow] {
    /// Opens the rows.
    ///
    /// - Parameter note: Called for each row that cannot be opened.
    func opened(_ coder: inout RowCoder, _ note: (SealingError, StoredRow) -> Void) -> [CopiedRow] {
        var opened: [CopiedRow] = []
        for row in self {
            do throws(SealingError) {
                opened.append(try row.opened(&coder))
            } catch {
                note(error, row)
            }
        }
        return opened
    }
}

/// Where a page of rows begins.
///
/// Tokens come before sessions, both in the order of their keys, which are hashes in a sealed store.
struct RowPosition: Sendable {
    var areSessions = false
    /// The key of the last row before the page; empty at the beginning.
    var key: [UInt8] = []
}

/// Statements of administration, each on a limited number of rows.
extension BlockingConnection {
    /// Reads a page of rows.
    ///
    /// - Parameter limit: How many rows it has at most, besides tokens that are stored at this moment. It has fewer if they are large.
    /// - Returns: The rows, and where the next page begins; nil at the end.
    func page(from start: RowPosition, limit: Int) throws(PostgresError) -> (rows: [StoredRow], next: RowPosition?) {
        guard start.areSessions else {
            let (rows, next) = try tokens(after: start.key, limit: limit)
            return (rows.map(StoredRow.token), RowPosition(areSessions: next == nil, key: next ?? []))
        }
        let result = try run(
            "SELECT \(Statement.sessionColumns) FROM session WHERE key > $1::bytea ORDER BY key LIMIT $2::bigint",
            [.bytea(start.key), .bigint(Int64(limit))])
        let rows = (0..<result.rowCount).map { SessionRow(result, row: $0) }
        guard rows.count == limit, let last = rows.last else { return (rows.map(StoredRow.session), nil) }
        return (rows.map(StoredRow.session), RowPosition(areSessions: true, key: last.key))
    }

    /// Reads a page of tokens after a key; `next` is the key after which the next page begins, nil at the end.
    func tokens(after key: [UInt8], limit: Int) throws(PostgresError) -> (rows: [StoredToken], next: [UInt8]?) {
        // Asks for the sizes first, as libpq would keep all of a thousand large tokens in memory; and for one row more, to know
        // whether there is a next page.
        let sizes = try run(
            """
            SELECT key, octet_length(value) FROM token WHERE key > $1::bytea AND value IS NOT NULL
            ORDER BY key LIMIT $2::bigint
            """, [.bytea(key), .bigint(Int64(limit) + 1)])
        var (count, bytes) = (0, 0)
        while count < min(limit, sizes.rowCount), bytes < StoredToken.pageBytes {
            bytes += Int(sizes.integer(count, 1))
            count += 1
        }
        guard count > 0 else { return ([], nil) }
        let last = sizes.bytes(count - 1, 0)
        // Reads all tokens up to there, also those that were stored meanwhile: with a limit, they would push out others.
        let result = try run(
            """
            SELECT \(Statement.columns) FROM token WHERE key > $1::bytea AND key <= $2::bytea AND value IS NOT NULL
            ORDER BY key
            """, [.bytea(key), .bytea(last)])
        return ((0..<result.rowCount).map { StoredToken(result, row: $0) }, count < sizes.rowCount ? last : nil)
    }

    /// Counts the tokens, up to a limit.
    func tokenCount(upTo limit: Int = .max) throws(PostgresError) -> Int {
        let sql = "SELECT count(*) FROM (SELECT FROM token WHERE value IS NOT NULL LIMIT $1::bigint) AS counted"
        return Int(try integer(sql, [.bigint(Int64(limit))]) ?? 0)
    }

    /// How many tokens there are: counted, or PostgreSQL's estimate if there are too many to count within milliseconds.
    func tokenEstimate() throws(PostgresError) -> (tokens: Int, isEstimated: Bool) {
        let limit = 100_000
        let count = try tokenCount(upTo: limit + 1)
        guard count > limit else { return (count, false) }
        // The estimate for a new table may be less than what was counted.
        let estimate = try? integer("SELECT reltuples::bigint FROM pg_class WHERE oid = 'token'::regclass")
        return (max(count, Int(estimate ?? 0)), true)
    }

    /// Replaces the sealed values of tokens, unless they were written again; in a transaction of the caller's.
    ///
    /// - Parameter rows: With the versions that the tokens had when they were read.
    func replace(_ rows: [(row: Row, version: TokenVersion)]) throws(PostgresError) {
        let keys = Parameters.Value.byteas(rows.map(\.row.key.bytes))
        // Locks the rows in the order of their keys, as every transaction with several rows does.
        try run("SELECT 1 FROM token WHERE key = ANY ($1::bytea[]) ORDER BY key FOR UPDATE", [keys])
        try run(
            """
            UPDATE token SET key_number = sealed.key_number, value = sealed.value
            FROM unnest($1::bytea[], $2::bigint[], $3::bigint[], $4::bytea[]) AS sealed (key, version, key_number, value)
            WHERE token.key = sealed.key AND token.version = sealed.version AND token.value IS NOT NULL
            """,
            [
                keys, .bigints(rows.map(\.version.rawValue)), .bigints(rows.map { Int64($0.row.keyNumber) }),
                .byteas(rows.map(\.row.value)),
            ])
    }

    /// Replaces the sealed values of sessions that still exist.
    ///
    /// - Parameter rows: With the numbers of the keys that had sealed the values.
    func replace(_ rows: [(row: SessionRow, former: Int)]) throws(PostgresError) {
        for (row, former) in rows {
            try run(
                """
                UPDATE session SET key_number = $2::bigint, user_value = $3::bytea
                WHERE key = $1::bytea AND key_number = $4::bigint
                """,
                [.bytea(row.key), .bigint(Int64(row.keyNumber)), .bytea(row.user), .bigint(Int64(former))])
        }
    }

    /// Adds tokens to an empty table.
    func add(_ tokens: [(row: Row, version: TokenVersion)]) throws(PostgresError) {
        try run(
            """
            INSERT INTO token (\(Statement.columns))
            SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bytea[])
            """,
            [
                .byteas(tokens.map(\.row.key.bytes)), .bigints(tokens.map(\.version.rawValue)),
                .bigints(tokens.map(\.row.times.writtenAt)), .bigints(tokens.map(\.row.times.expiresAt)),
                .bigints(tokens.map { Int64($0.row.keyNumber) }), .byteas(tokens.map(\.row.value)),
            ])
    }

    /// Adds sessions to an empty table.
    func add(_ sessions: [SessionRow]) throws(PostgresError) {
        try run(
            """
            INSERT INTO session (\(Statement.sessionColumns))
            SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bigint[],
                $7::bigint[], $8::bigint[], $9::bytea[])
            """,
            [
                .byteas(sessions.map(\.key)), .byteas(sessions.map(\.id)), .byteas(sessions.map(\.userKey)),
                .bigints(sessions.map { Int64($0.keyNumber) }), .bigints(sessions.map(\.createdAt)),
                .bigints(sessions.map(\.expiresAt)), .bigints(sessions.map(\.usedAt)), .bigints(sessions.map(\.number)),
                .byteas(sessions.map(\.user)),
            ])
    }
}
#endif
