#if PostgreSQL
internal import System
internal import TokenStore

/// What is deleted without anybody having asked for it.
enum ExpiredRows: Hashable, Sendable {
    /// Tokens that were written before a moment; all moments are in seconds since 1970.
    case tokensWritten(before: Int64)
    /// Tokens that have expired, by their own account, before a moment.
    case tokensExpired(before: Int64)
    /// Traces of tokens that were removed before a moment.
    case tombstones(before: Int64)
    /// Sessions that have expired at a moment.
    case sessionsExpired(at: Int64)
    /// Sessions that were last used before a moment.
    case sessionsUnused(since: Int64)

    /// How long traces of removed tokens are kept: much longer than any write can be delayed.
    static let tombstoneTime: Int64 = 3_600

    /// Everything that has expired.
    ///
    /// - Parameters:
    ///   - retention: The one in force.
    ///   - now: In seconds since 1970.
    static func all(_ retention: Retention, at now: Int64) -> [ExpiredRows] {
        let horizon = retention.horizon(at: now)
        let kinds: [ExpiredRows?] = [
            horizon?.written.map { .tokensWritten(before: $0) }, horizon?.expired.map { .tokensExpired(before: $0) },
            .sessionsExpired(at: now),
            retention.sinceSessionUsed.map { .sessionsUnused(since: now - $0.components.seconds) },
            .tombstones(before: now - tombstoneTime),
        ]
        return kinds.compactMap(\.self)
    }

    /// Whether they are tokens, which operators are told of.
    var areTokens: Bool {
        switch self {
        case .tokensWritten, .tokensExpired: true
        case .tombstones, .sessionsExpired, .sessionsUnused: false
        }
    }

    private var table: String {
        switch self {
        case .tokensWritten, .tokensExpired, .tombstones: "token"
        case .sessionsExpired, .sessionsUnused: "session"
        }
    }

    /// What says of a row that it has expired, and the column that an index finds it by.
    private var condition: (text: String, column: String, moment: Int64) {
        switch self {
        case .tokensWritten(let moment): ("value IS NOT NULL AND written_at < $1::bigint", "written_at", moment)
        case .tokensExpired(let moment): ("value IS NOT NULL AND expires_at < $1::bigint", "expires_at", moment)
        case .tombstones(let moment):
            ("key_number < 0 AND value IS NULL AND written_at < $1::bigint", "key_number", moment)
        case .sessionsExpired(let moment): ("expires_at <= $1::bigint", "expires_at", moment)
        case .sessionsUnused(let moment): ("used_at < $1::bigint", "used_at", moment)
        }
    }

    /// The index that finds them, if `migrate` makes it only for those who delete such rows; see RetentionIndex.
    var index: RetentionIndex? {
        switch self {
        case .tokensWritten: .written
        case .tokensExpired: .expired
        case .tombstones, .sessionsExpired, .sessionsUnused: nil
        }
    }

    /// Deletes some of them, the oldest first.
    ///
    /// By their keys, so that only rows are locked that are deleted, and those are so few that nobody waits long.
    ///
    /// - Parameters:
    ///   - limit: How many at most.
    ///   - session: A session outside of a transaction.
    ///   - deadline: When it must be done.
    /// - Returns: How many were deleted, and whether there may be more.
    func delete(
        upTo limit: Int, _ session: BlockingSession, until deadline: MonotonicTime
    ) throws(PostgresError) -> (count: Int, hasMore: Bool) {
        let (text, column, moment) = condition
        var parameters = Parameters()
        parameters.append(moment)
        let keys = try session.run(
            "SELECT key FROM \(table) WHERE \(text) ORDER BY \(column) LIMIT \(limit)", parameters, until: deadline
        ) { (result) throws(PostgresError) in (0..<result.rowCount).map { result.bytes($0, 0) } }
        guard !keys.isEmpty else { return (0, false) }
        parameters.append(keys)
        // Some may have been written or used again meanwhile.
        let count = try session.run(
            "DELETE FROM \(table) WHERE key = ANY ($2::bytea[]) AND \(text)", parameters, until: deadline
        ) { (result) throws(PostgresError) in result.changedCount }
        return (count, keys.count == limit)
    }
}
#endif
