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

    /// Where it was read, as in `RowPlace`; 0 if that was not asked for.
    let place: Int64

    init(_ result: borrowing QueryResult, row: Int) {
        key = result.bytes(row, 0)
        version = TokenVersion(rawValue: result.integer(row, 1))
        times = RowTimes(writtenAt: result.integer(row, 2), expiresAt: result.optionalInteger(row, 3))
        keyNumber = result.keyNumber(row, 4)
        value = result.isNull(row, 5) ? nil : result.bytes(row, 5)
        place = result.columnCount > 6 ? result.integer(row, 6) : 0
    }
}

/// A row of the table `token` or `session`.
enum StoredRow: Sendable {
    case token(StoredToken)
    case session(SessionRow)

    /// A name for operators: a token's key as the database shows it, or a session's id.
    var name: String {
        switch self {
        case .token(let row): "the token with the key \\x\(Hexadecimal.text(row.key))"
        case .session(let row): "the session \(Base64URL.encode(row.id.span))"
        }
    }

    /// How many bytes its sealed value has.
    fileprivate var valueLength: Int {
        switch self {
        case .token(let row): row.value?.count ?? 0
        case .session(let row): row.user.count
        }
    }

    /// Whether it stands for a removed token.
    var isRemoved: Bool { if case .token(let row) = self { row.value == nil } else { false } }

    /// The row with another key number.
    func resealed(keyNumber: Int) -> Resealed {
        switch self {
        case .token(let row):
            (row.key, row.place, row.version.rawValue, keyNumber, row.times.writtenAt, row.value ?? [])
        case .session(let row): (row.key, 0, row.number, keyNumber, row.createdAt, row.user)
        }
    }

    /// Whether it opens with no key, although its own is there.
    func isDamaged(_ coder: inout RowCoder) -> Bool {
        do {
            _ = try opened(&coder)
            return false
        } catch {
            switch error {
            case .tampered, .malformed, .misplaced: return true
            case .missingKey, .refused: return false
            }
        }
    }

    func opened(_ coder: inout RowCoder) throws(SealingError) -> CopiedRow {
        switch self {
        case .token(let row): .token(try row.token(&coder), row.times, row.version)
        case .session(let row): .session(try coder.open(row), number: row.number)
        }
    }

    /// The same for a row in the clear.
    func clear() throws(SealingError) -> CopiedRow {
        switch self {
        case .token(let row): .token(try ClearRow.token(key: row.key, value: row.value ?? []), row.times, row.version)
        case .session(let row): .session(try ClearRow.session(row), number: row.number)
        }
    }
}

/// The place after which the next rows are read.
///
/// Tokens come first, in the order of the disk, then sessions, in the order of their keys, as each note of a use moves a session on
/// the disk. If that meets a damaged page, all sessions are read in the order of the disk instead, so that each damaged page hides
/// only its own rows.
enum RowPlace: Hashable, Sendable {
    /// The number of the table's page in the upper bits, and the number of a row in the page in the lower 16 (PostgreSQL's `tid`);
    /// pages from `end` on are not read, as what this reader writes itself may come to lie there.
    case onDisk(RowTable, Int64, end: Int64)
    /// The key of a session; empty at the beginning.
    case session([UInt8])

    static let rowBits: Int64 = 16

    /// A row of a table, given by its place on the disk, as a `tid` in text.
    static func text(_ row: Int64) -> String { "(\(row >> rowBits),\(row & (1 << rowBits - 1)))" }

    /// Whether a row of this table, given by its place on the disk, is still to be read.
    func isBefore(_ row: Int64) -> Bool {
        guard case .onDisk(_, let place, let end) = self else { return false }
        return place < row && row >> Self.rowBits < end
    }

    var table: RowTable { if case .onDisk(let table, _, _) = self { table } else { .session } }

    /// The number of the page; nil in the order of keys.
    var page: Int64? { if case .onDisk(_, let place, _) = self { place >> Self.rowBits } else { nil } }

    /// The place at the beginning of a page; after the last page, that of the next table, and nil after the last table.
    static func page(_ page: Int64, of table: RowTable, end: Int64) -> RowPlace? {
        if page < end { return .onDisk(table, page << rowBits, end: end) }
        return table == .token ? .session([]) : nil
    }
}

extension RowPlace: LosslessStringConvertible {
    init?(_ text: String) {
        let parts = text.split(separator: " ")
        guard let table = parts.first.flatMap({ RowTable(rawValue: String($0)) }) else { return nil }
        if parts.count == 3, let place = Int64(parts[1]), let end = Int64(parts[2]) {
            self = .onDisk(table, place, end: end)
        } else if table == .session, let key = Base64URL.decode(Array(parts.dropFirst().joined().utf8).span) {
            self = .session(key)
        } else {
            return nil
        }
    }

    var description: String {
        switch self {
        case .onDisk(let table, let place, let end): "\(table) \(place) \(end)"
        case .session(let key): "session \(Base64URL.encode(key.span))"
        }
    }
}

/// A table of rows, and what its columns are named.
enum RowTable: String {
    case token, session

    /// An SQL expression: how many pages it has.
    ///
    /// Partitions, if it has some, are read side by side.
    var pages: String {
        """
        greatest(pg_relation_size('\(self)'), (SELECT max(pg_relation_size(relid)) FROM pg_partition_tree('\(self)'))) \
        / current_setting('block_size')::bigint
        """
    }

    fileprivate var columns: String { self == .token ? Statement.columns : Statement.sessionColumns }
    /// The sealed value.
    fileprivate var value: String { self == .token ? "value" : "user_value" }
    /// The time of writing.
    fileprivate var time: String { self == .token ? "written_at" : "created_at" }
    /// A number that changes with each write and use.
    fileprivate var use: String { self == .token ? "version" : "used_at" }
    /// A number that changes with each write of the sealed value, except that the walk writes it.
    fileprivate var write: String { self == .token ? "version" : "number" }
    /// A condition that finds a row at the place where it was read, so that the index of keys, which has another order, is not read.
    fileprivate func isAt(_ place: String) -> String {
        self == .token ? "token.ctid = ('(' || (\(place) >> 16) || ',' || (\(place) & 65535) || ')')::tid" : "true"
    }
}

/// A row to delete: where it was read, and the number that tells whether it was written or used meanwhile; see `RowTable.use`.
typealias ExpiredRow = (key: [UInt8], place: Int64, mark: Int64)

/// A new sealed value of a row with its time of writing, and the number that tells whether the row was written meanwhile; see
/// `RowTable.write`.
typealias Resealed = (key: [UInt8], place: Int64, mark: Int64, keyNumber: Int, writtenAt: Int64, value: [UInt8])

/// Statements of administration, each on a limited number of rows.
extension BlockingConnection {
    /// The place before the first row of a table, in the order of the disk.
    func firstPlace(in table: RowTable = .token) throws(PostgresError) -> RowPlace {
        .onDisk(table, 0, end: try integer("SELECT \(table.pages)") ?? 0)
    }

    /// The place after a page that cannot be read.
    func place(behind place: RowPlace) throws(PostgresError) -> RowPlace? {
        guard case .onDisk(let table, let number, let end) = place else { return try firstPlace(in: .session) }
        return .page(number >> RowPlace.rowBits + 1, of: table, end: end)
    }

    /// Reads the rows after a place, removed tokens included.
    ///
    /// - Parameters:
    ///   - pages: How many pages of a table are read at most, or twenty times as many sessions in the order of their keys.
    ///   - limit: Where an earlier call with the same place and pages has ended, and this one ends at the latest.
    ///   - keyNumber: Nil for rows of all keys.
    /// - Returns: The rows, and the next place; nil at the end.
    func rows(
        after place: RowPlace, pages: Int64, upTo limit: RowPlace? = nil, keyNumber: Int? = nil
    ) throws(PostgresError) -> (rows: [StoredRow], next: RowPlace?) {
        let number = Parameters.Value.bigint(keyNumber.map { Int64($0) })
        switch place {
        case .onDisk(let table, let place, let end):
            let endOfPages = min(place >> RowPlace.rowBits + pages, end)
            var stop = endOfPages << RowPlace.rowBits
            if case .onDisk(table, let last, _)? = limit { stop = last + 1 }
            // Not more bytes than this, as libpq keeps the whole result in memory; values outside of the pages are not read for it.
            let result = try run(
                """
                SELECT \(table.columns), place FROM (
                    SELECT \(table.columns), ctid AS place, coalesce(sum(octet_length(\(table.value))) OVER
                        (ORDER BY ctid GROUPS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS bytes
                    FROM \(table) WHERE ctid > $1::text::tid AND ctid < $2::text::tid
                    AND ($3::bigint IS NULL OR key_number = $3::bigint)) AS page
                WHERE bytes < $4::bigint ORDER BY place
                """,
                [
                    .text(RowPlace.text(place)), .text(RowPlace.text(stop)), number, .bigint(Int64(WalkPace.bytes)),
                ])
            let rows = (0..<result.rowCount).map { row in
                table == .token
                    ? StoredRow.token(StoredToken(result, row: row)) : .session(SessionRow(result, row: row))
            }
            guard rows.reduce(0, { $0 + $1.valueLength }) < WalkPace.bytes else {
                return (rows, .onDisk(table, result.integer(rows.count - 1, result.columnCount - 1), end: end))
            }
            return (rows, limit ?? .page(endOfPages, of: table, end: end))
        case .session(let key):
            let limit = pages * 20
            let result = try run(
                """
                SELECT \(Statement.sessionColumns) FROM session
                WHERE key > $1::bytea AND ($2::bigint IS NULL OR key_number = $2::bigint) ORDER BY key LIMIT $3::bigint
                """, [.bytea(key), number, .bigint(limit)])
            let rows = (0..<result.rowCount).map { SessionRow(result, row: $0) }
            let next = rows.count == limit ? rows.last.map { RowPlace.session($0.key) } : nil
            return (rows.map(StoredRow.session), next)
        }
    }

    /// Reads a page of tokens after a key; `next` is the key after which the next page begins, nil at the end.
    func tokens(after key: [UInt8], limit: Int) throws(PostgresError) -> (rows: [StoredToken], next: [UInt8]?) {
        // One row more than asked for shows whether there is a next page. The bytes are limited as above.
        let result = try run(
            """
            SELECT \(Statement.columns) FROM (
                SELECT \(Statement.columns), sum(octet_length(value)) OVER (ORDER BY key) - octet_length(value) AS bytes
                FROM token WHERE key > $1::bytea AND value IS NOT NULL ORDER BY key LIMIT $2::bigint) AS page
            WHERE bytes < $3::bigint ORDER BY key
            """, [.bytea(key), .bigint(Int64(limit) + 1), .bigint(Int64(WalkPace.bytes))])
        let rows = (0..<min(limit, result.rowCount)).map { StoredToken(result, row: $0) }
        let bytes = rows.reduce(0) { $0 + ($1.value?.count ?? 0) }
        return (rows, result.rowCount > limit || bytes >= WalkPace.bytes ? rows.last?.key : nil)
    }

    /// Counts the tokens, up to a limit.
    func tokenCount(upTo limit: Int = .max) throws(PostgresError) -> Int {
        let sql = "SELECT count(*) FROM (SELECT FROM token WHERE value IS NOT NULL LIMIT $1::bigint) AS counted"
        return Int(try integer(sql, [.bigint(Int64(limit))]) ?? 0)
    }

    /// How many tokens there are: counted, or PostgreSQL's estimate if there are too many to count within milliseconds.
    ///
    /// It is also an estimate if a damaged page prevents counting.
    func tokenEstimate() throws(PostgresError) -> (tokens: Int, isEstimated: Bool) {
        let limit = 100_000
        var count = 0
        do {
            count = try tokenCount(upTo: limit + 1)
            guard count > limit else { return (count, false) }
        } catch {
            guard error.isOfDamage else { throw error }
        }
        // The estimate for a new table may be less than what was counted.
        let estimate = try? integer(
            """
            SELECT sum(greatest(reltuples, 0))::bigint FROM pg_class WHERE relkind = 'r'
            AND (oid = 'token'::regclass OR oid IN (SELECT relid FROM pg_partition_tree('token')))
            """)
        return (max(count, Int(estimate ?? 0)), true)
    }

    /// Deletes rows, except those that were written or used since they were read, and those that others have locked.
    ///
    /// - Returns: How many rows with a value were deleted.
    func delete(_ rows: [ExpiredRow], from table: RowTable) throws(PostgresError) -> Int {
        guard !rows.isEmpty else { return 0 }
        let result = try run(
            """
            DELETE FROM \(table) WHERE key = ANY (ARRAY(
                SELECT \(table).key FROM \(table) JOIN unnest($1::bytea[], $2::bigint[], $3::bigint[]) AS seen (key, place, mark)
                ON \(table).key = seen.key AND \(table.isAt("place")) WHERE mark = \(table.use)
                ORDER BY 1 FOR UPDATE OF \(table) SKIP LOCKED))
            RETURNING \(table.value) IS NOT NULL
            """, [.byteas(rows.map(\.key)), .bigints(rows.map(\.place)), .bigints(rows.map(\.mark))])
        return (0..<result.rowCount).count { result.integer($0, 0) != 0 }
    }

    /// Replaces the sealed values and the times of writing of rows.
    ///
    /// Rows that were written since they were read, or that others have locked, stay as they are.
    ///
    /// - Returns: Where the replaced rows are now, as in `RowPlace`.
    func replace(_ rows: [Resealed], in table: RowTable) throws(PostgresError) -> [Int64] {
        guard !rows.isEmpty else { return [] }
        let result = try run(
            """
            WITH free AS (
                SELECT new.*, \(table).ctid AS own FROM \(table) JOIN
                unnest($1::bytea[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bytea[])
                AS new (key, place, mark, new_number, new_time, new_value) ON \(table).key = new.key AND \(table.isAt("place"))
                WHERE mark = \(table).\(table.write) AND (key_number, \(table.time)) <> (new_number, new_time)
                ORDER BY new.key FOR UPDATE OF \(table) SKIP LOCKED
            )
            UPDATE \(table) SET key_number = new_number, \(table.time) = new_time, \(table.value) = new_value
            FROM free WHERE \(table).key = free.key AND \(table).ctid = own
            RETURNING \(table).ctid
            """,
            [
                .byteas(rows.map(\.key)), .bigints(rows.map(\.place)), .bigints(rows.map(\.mark)),
                .bigints(rows.map { Int64($0.keyNumber) }), .bigints(rows.map(\.writtenAt)), .byteas(rows.map(\.value)),
            ])
        return (0..<result.rowCount).map { result.integer($0, 0) }
    }

    /// Adds tokens, except those that are there.
    func add(_ tokens: [(row: Row, version: TokenVersion)]) throws(PostgresError) {
        try run(
            """
            INSERT INTO token (\(Statement.columns))
            SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bytea[])
            ON CONFLICT (key) DO NOTHING
            """,
            [
                .byteas(tokens.map(\.row.key.bytes)), .bigints(tokens.map(\.version.rawValue)),
                .bigints(tokens.map(\.row.times.writtenAt)), .bigints(tokens.map(\.row.times.expiresAt)),
                .bigints(tokens.map { Int64($0.row.keyNumber) }), .byteas(tokens.map(\.row.value)),
            ])
    }

    /// Adds sessions, except those that are there.
    func add(_ sessions: [SessionRow]) throws(PostgresError) {
        try run(
            """
            INSERT INTO session (\(Statement.sessionColumns))
            SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bigint[],
                $7::bigint[], $8::bigint[], $9::bytea[])
            ON CONFLICT (key) DO NOTHING
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
