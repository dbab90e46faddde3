#if PostgreSQL
internal import Synchronization
internal import System
internal import TokenStore

/// Deletes what has expired.
///
/// Clients do not wait for it: handles hide tokens from the moment at which they expire. Rows are deleted a few at a time, and
/// between two such steps the database has as long a rest. Of several servers, one deletes at a time: the others find its lock, and
/// leave it the rest.
struct Sweeper {
    private let sessions: PrimarySessions
    private let state: PostgresState
    private let interval: Duration
    private var nextStep = MonotonicTime.now
    /// What is left to be deleted in this round.
    private var left: [ExpiredRows] = []
    /// Tokens that this round has deleted.
    private var count = 0
    /// The retention of this round.
    private var retention: Retention?
    /// Whether the last step failed.
    private var hasFailed = false
    /// Operators were told that nothing is deleted, and not yet that deleting continues.
    private var hasReportedHold = false
    /// Indexes whose absence operators were told of.
    private var missingIndexes: Set<RetentionIndex> = []

    /// How long one step may take.
    private static let limit = Duration.seconds(10)

    /// - Parameters:
    ///   - sessions: Used one at a time.
    ///   - state: Has the retention; gets the counts.
    ///   - interval: The longest time between two rounds.
    init(_ sessions: PrimarySessions, _ state: PostgresState, interval: Duration) {
        (self.sessions, self.state, self.interval) = (sessions, state, interval)
    }

    /// How long there is nothing to do.
    var pause: Duration { .nanoseconds((nextStep - .now).count) }

    /// Does the next step, if it is due.
    mutating func proceed() {
        guard nextStep <= .now || retention != state.retention else { return }
        let began = MonotonicTime.now
        do throws(StoreError) {
            if left.isEmpty || retention != state.retention { try begin() }
            if let rows = left.first { try delete(rows) }
            hasFailed = false
            nextStep = .now + (left.isEmpty ? Nanoseconds(interval) : .now - began)
        } catch {
            // Otherwise it is the database that cannot be reached, of which clients' requests tell.
            if !error.mayRetry, !hasFailed {
                let text = "expired tokens and sessions are hidden, but cannot be deleted for now: \(error)"
                state.report(.own(StoreNotice(.warning, text)))
            }
            (hasFailed, left) = (true, [])
            nextStep = .now + Nanoseconds(interval)
        }
        if left.isEmpty, count > 0 {
            state.report(.expired(count: count))
            count = 0
        }
    }

    private mutating func begin() throws(StoreError) {
        retention = state.retention
        let reading = ExpiryClock.Reading.now
        state.clock.use { $0.look(at: reading) }
        let hasSessions = try sessions.perform(.reading, within: Self.limit, repeats: true) {
            (session, deadline) throws(PostgresError) in
            try session.run("SELECT 1 FROM session LIMIT 1", until: deadline) { (result) throws(PostgresError) in
                result.rowCount > 0
            }
        }
        if let time = state.clock.use({ $0.due(isExpiring: true) }) {
            try store(clockLook: time)
            state.clock.use { $0.noteSaved(time) }
        }
        // Without a retention nothing is deleted, so no deletion is held back either.
        let isExpiring = state.retention.deletionInterval(hasSessions: hasSessions) != nil
        left = mayDelete(isExpiring) ? ExpiredRows.all(state.retention, at: reading.wall) : []
    }

    private mutating func delete(_ rows: ExpiredRows) throws(StoreError) {
        guard try hasIndex(for: rows) else {
            left.removeFirst()
            return
        }
        let deleted = try sessions.perform(within: Self.limit, repeats: true) {
            (session, deadline) throws(PostgresError) in try rows.delete(session, until: deadline)
        }
        if rows.areTokens {
            count += deleted
            state.metrics.expired.add(UInt64(deleted), ordering: .relaxed)
        }
        if deleted < ExpiredRows.batch { left.removeFirst() }
    }

    /// Whether rows can be found without reading all tokens; tells operators what to do if they cannot.
    private mutating func hasIndex(for rows: ExpiredRows) throws(StoreError) -> Bool {
        guard let index = rows.index else { return true }
        let isThere = try sessions.perform(.reading, within: Self.limit, repeats: true) {
            (session, deadline) throws(PostgresError) in try index.isThere(session, until: deadline)
        }
        if !isThere, missingIndexes.insert(index).inserted {
            let text = """
                expired tokens are hidden but not deleted, as the database has no index \(index.rawValue) to find them by: \
                run token-cache migrate with this configuration, as the role that owns the tables
                """
            state.report(.own(StoreNotice(.warning, text)))
        }
        return isThere
    }

    // MARK: - The clock

    private func store(clockLook time: Int64) throws(StoreError) {
        try sessions.perform(within: Self.limit, repeats: true) { (session, deadline) throws(PostgresError) in
            var parameters = Parameters()
            parameters.append(time)
            try session.run("UPDATE store SET looked_at = $1::bigint WHERE one = 1", parameters, until: deadline)
        }
    }

    /// Whether the clock is trusted to delete; reports when that changes.
    private mutating func mayDelete(_ isExpiring: Bool) -> Bool {
        let (holdsExpiry, deviation) = state.clock.use { ($0.holdsExpiry, $0.deviation) }
        let isHeld = holdsExpiry && isExpiring
        state.metrics.isExpiryHeld.store(isHeld, ordering: .relaxed)
        if isHeld != hasReportedHold {
            hasReportedHold = isHeld
            if isHeld {
                state.report(.expiryHeld(seconds: deviation))
            } else if isExpiring {
                state.report(.expiryGoesOn)
            }
        }
        return !holdsExpiry
    }
}

/// The kinds of rows that are deleted automatically.
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

    /// How long rows of removed tokens are kept: much longer than any write can be delayed.
    static let tombstoneTime: Int64 = 3_600
    /// Rows that are deleted in one step.
    static let batch = 256

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

    /// Whether the rows are tokens; their deletion is reported to operators.
    var areTokens: Bool { index != nil }

    /// The index that finds them, if `migrate` makes it only for those who delete such rows; see RetentionIndex.
    var index: RetentionIndex? {
        switch self {
        case .tokensWritten: .written
        case .tokensExpired: .expired
        case .tombstones, .sessionsExpired, .sessionsUnused: nil
        }
    }

    /// What says of a row that it has expired, and the column that an index finds it by.
    private var condition: (table: String, text: String, column: String, moment: Int64) {
        switch self {
        case .tokensWritten(let moment):
            ("token", "value IS NOT NULL AND written_at < $1::bigint", "written_at", moment)
        case .tokensExpired(let moment):
            ("token", "value IS NOT NULL AND expires_at < $1::bigint", "expires_at", moment)
        case .tombstones(let moment):
            ("token", "key_number < 0 AND value IS NULL AND written_at < $1::bigint", "key_number", moment)
        case .sessionsExpired(let moment): ("session", "expires_at <= $1::bigint", "expires_at", moment)
        case .sessionsUnused(let moment): ("session", "used_at < $1::bigint", "used_at", moment)
        }
    }

    /// Deletes some of them, the oldest first; none if another server does so at this moment.
    ///
    /// Rows that somebody else has locked are left for the next time, so nobody waits for anybody.
    ///
    /// - Parameters:
    ///   - session: A session outside of a transaction.
    ///   - deadline: When it must be done.
    /// - Returns: How many were deleted; as many as `batch` if there may be more.
    func delete(_ session: BlockingSession, until deadline: MonotonicTime) throws(PostgresError) -> Int {
        let (table, text, column, moment) = condition
        var parameters = Parameters()
        parameters.append(moment)
        return try session.run(
            """
            DELETE FROM \(table) WHERE ctid = ANY (ARRAY(SELECT ctid FROM \(table)
                WHERE \(text) AND (SELECT pg_try_advisory_xact_lock\(Schema.sweepLock))
                ORDER BY \(column) LIMIT \(Self.batch) FOR UPDATE SKIP LOCKED))
            """, parameters, until: deadline
        ) { (result) throws(PostgresError) in result.changedCount }
    }
}
#endif
