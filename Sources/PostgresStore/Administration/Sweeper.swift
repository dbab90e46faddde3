#if PostgreSQL
internal import Synchronization
internal import System
internal import TokenStore

/// Deletes what has expired.
///
/// Clients do not wait for it: handles hide tokens from the moment at which they expire. Rows are deleted a few at a time, and each
/// server rests after such a step for as long as it took. Several servers do so beside one another.
struct Sweeper {
    private let connections: PrimaryConnections
    private let state: PostgresState
    private let interval: Duration
    private var nextStep = MonotonicTime.now
    /// What is left to be deleted in this round.
    private var left: [ExpiredRows] = []
    /// Tokens that this round has deleted.
    private var count = 0
    /// The retention of this round.
    private var retention: Retention?

    /// How long one step may take.
    private static let limit = Duration.seconds(10)

    /// - Parameters:
    ///   - connections: Used one at a time.
    ///   - state: Has the retention; gets the counts.
    ///   - interval: The longest time between two rounds.
    init(_ connections: PrimaryConnections, _ state: PostgresState, interval: Duration) {
        (self.connections, self.state, self.interval) = (connections, state, interval)
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
            nextStep = .now + (left.isEmpty ? Nanoseconds(interval) : .now - began)
        } catch {
            // Otherwise it is the database that cannot be reached, of which clients' requests tell.
            if !error.mayRetry, !state.isClosed.load(ordering: .acquiring) {
                let text = "expired tokens and sessions are hidden, but cannot be deleted for now: \(error)"
                state.sayOnce(.warning, text)
            }
            left = []
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
        let hasSessions = try perform { (connection) throws(PostgresError) in
            try connection.integer("SELECT 1 FROM session LIMIT 1") != nil
        }
        if let time = state.clock.use({ $0.due(isExpiring: true) }) {
            try perform { (connection) throws(PostgresError) in
                try connection.run("UPDATE store SET looked_at = $1::bigint WHERE one = 1", [.bigint(time)])
            }
            state.clock.use { $0.noteSaved(time) }
        }
        // Without a retention nothing is deleted, so no deletion is held back either.
        let isExpiring = state.retention.deletionInterval(hasSessions: hasSessions) != nil
        let mayDelete = state.clock.mayDelete(isExpiring: isExpiring, state.report)
        left = mayDelete ? ExpiredRows.all(state.retention, at: reading.wall) : []
    }

    private mutating func delete(_ rows: ExpiredRows) throws(StoreError) {
        guard try hasIndex(for: rows) else {
            left.removeFirst()
            return
        }
        let deleted = try perform { (connection) throws(PostgresError) in try rows.delete(connection) }
        if rows.index != nil {
            count += deleted
            state.count { $0.store.expired += UInt64(deleted) }
        }
        if deleted < ExpiredRows.batch { left.removeFirst() }
    }

    /// Whether rows can be found without reading all tokens; tells operators what to do if they cannot.
    private mutating func hasIndex(for rows: ExpiredRows) throws(StoreError) -> Bool {
        guard let index = rows.index else { return true }
        let isThere = try perform { (connection) throws(PostgresError) in try index.isThere(connection) }
        if !isThere {
            state.sayOnce(
                .warning,
                """
                expired tokens are hidden but not deleted, as the database has no index \(index.rawValue) to find them by: \
                run token-cache migrate with this configuration, as the role that owns the tables
                """)
        }
        return isThere
    }

    private func perform<Value>(
        _ body: (BlockingConnection) throws(PostgresError) -> Value
    ) throws(StoreError) -> Value {
        try connections.perform(within: Self.limit, body)
    }
}

/// What is deleted without anybody having asked for it.
struct ExpiredRows: Sendable {
    let table: String
    /// What says of a row that it has expired: a column with a time that is `age` before `now`, and what else must be so.
    let condition: String
    /// The column that an index finds it by.
    let column: String
    /// This server's time, in seconds since 1970.
    let now: Int64
    /// In seconds.
    let age: Int64
    /// The index, if they are tokens, of which operators are told; `migrate` makes it only for those who delete them.
    var index: RetentionIndex?

    /// How long rows of removed tokens are kept: much longer than any write can be delayed.
    static let tombstoneTime: Int64 = 3_600
    /// Rows that are deleted in one step.
    static let batch = 256

    /// Tokens whose time in a column is longer ago than an age.
    static func tokens(_ column: String, at now: Int64, age: Duration, _ index: RetentionIndex) -> ExpiredRows {
        ExpiredRows(
            table: "token", condition: "value IS NOT NULL AND \(column) <", column: column, now: now,
            age: age.components.seconds, index: index)
    }

    /// Everything that has expired.
    ///
    /// - Parameters:
    ///   - retention: The one in force.
    ///   - now: In seconds since 1970.
    static func all(_ retention: Retention, at now: Int64) -> [ExpiredRows] {
        let kinds: [ExpiredRows?] = [
            retention.sinceWritten.map { tokens("written_at", at: now, age: $0, .written) },
            retention.sinceExpired.map { tokens("expires_at", at: now, age: $0, .expired) },
            ExpiredRows(table: "session", condition: "expires_at <=", column: "expires_at", now: now, age: 0),
            retention.sinceSessionUsed.map {
                ExpiredRows(
                    table: "session", condition: "used_at <", column: "used_at", now: now, age: $0.components.seconds)
            },
            ExpiredRows(
                table: "token", condition: "key_number < 0 AND value IS NULL AND written_at <", column: "key_number",
                now: now, age: tombstoneTime),
        ]
        return kinds.compactMap(\.self)
    }

    /// Deletes some of them, the oldest first.
    ///
    /// Rows that another server deletes, or somebody else has locked, are left for the next time, so nobody waits for anybody. A
    /// server whose clock is ahead of the database's goes by that one, so that it does not delete what the others still need.
    ///
    /// - Parameter connection: Outside of a transaction.
    /// - Returns: How many were deleted; as many as `batch` if there may be more.
    func delete(_ connection: BlockingConnection) throws(PostgresError) -> Int {
        return try connection.run(
            """
            DELETE FROM \(table) WHERE ctid = ANY (ARRAY(SELECT ctid FROM \(table)
                WHERE \(condition) least($1::bigint, floor(extract(epoch FROM now()))::bigint) - $2::bigint
                ORDER BY \(column) LIMIT \(Self.batch) FOR UPDATE SKIP LOCKED))
            """, [.bigint(now), .bigint(age)]
        ).changedCount
    }
}
#endif
