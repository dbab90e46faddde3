#if PostgreSQL
import Synchronization
import System
import TokenStore

/// Deletes what has expired.
///
/// Clients need not wait for it: handles hide expired tokens at once. Rows are deleted a few at a time, and after each step the
/// server rests for as long as the step took. All servers of a database do this at the same time.
struct Sweeper {
    private let connections: PrimaryConnections
    private let state: PostgresState
    private let interval: Duration
    private var nextStep = MonotonicTime.now
    /// What is still to be deleted in this round.
    private var left: [ExpiredRows] = []
    /// How many tokens this round has deleted.
    private var count = 0
    /// The retention with which this round began.
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

    /// How long to wait for the next step.
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
            // If the database cannot be reached, clients' requests report that.
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
        // Rows are dated by the database's clock, should this machine's be wrong at the start.
        state.clock.use {
            $0.look(at: reading)
            $0.accept()
        }
        let hasSessions = try perform { (connection) throws(PostgresError) in
            try connection.integer("SELECT 1 FROM session LIMIT 1") != nil
        }
        if let time = state.clock.use({ $0.due(isExpiring: true) }) {
            try perform { (connection) throws(PostgresError) in
                try connection.run("UPDATE store SET looked_at = $1::bigint WHERE one = 1", [.bigint(time)])
            }
            state.clock.use { $0.noteSaved(time) }
        }
        // If nothing expires, no deletion is held back either.
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

    /// Whether the rows can be found without reading all tokens; if not, tells operators what to do.
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

/// One kind of rows that expire.
struct ExpiredRows: Sendable {
    let table: String
    /// The condition of an expired row, up to the operand of a comparison: `now` less `age`.
    let condition: String
    /// The column of an index that finds the rows.
    let column: String
    /// This server's time, in seconds since 1970.
    let now: Int64
    /// In seconds.
    let age: Int64
    /// The index of tokens, which `migrate` makes only if the retention needs it; nil for other rows, whose deletion is not reported.
    var index: RetentionIndex?

    /// How long the rows of removed tokens are kept, in seconds: much longer than any write can be delayed.
    static let tombstoneTime: Int64 = 3_600
    /// How many rows one step deletes.
    static let batch = 256

    /// Tokens whose time in a column is longer ago than `age`.
    static func tokens(_ column: String, at now: Int64, age: Duration, _ index: RetentionIndex) -> ExpiredRows {
        ExpiredRows(
            table: "token", condition: "value IS NOT NULL AND \(column) <", column: column, now: now,
            age: age.components.seconds, index: index)
    }

    /// All kinds of rows that expire.
    ///
    /// - Parameter now: In seconds since 1970.
    static func all(_ retention: Retention, at now: Int64) -> [ExpiredRows] {
        let kinds: [ExpiredRows?] = [
            retention.afterWritten.map { tokens("written_at", at: now, age: $0, .written) },
            retention.afterExpired.map { tokens("expires_at", at: now, age: $0, .expired) },
            ExpiredRows(table: "session", condition: "expires_at <=", column: "expires_at", now: now, age: 0),
            retention.sessionIdleTimeout.map {
                ExpiredRows(
                    table: "session", condition: "used_at <", column: "used_at", now: now, age: $0.components.seconds)
            },
            ExpiredRows(
                table: "token", condition: "key_number < 0 AND value IS NULL AND written_at <", column: "key_number",
                now: now, age: tombstoneTime),
        ]
        return kinds.compactMap(\.self)
    }

    /// Deletes some of the rows, the oldest first.
    ///
    /// Rows that others have locked, for example because another server is deleting them, are left for the next time, so this waits
    /// for nobody. If this server's clock is ahead of the database's, the database's counts, so that nothing is deleted that other
    /// servers still need.
    ///
    /// - Parameter connection: Outside of a transaction.
    /// - Returns: How many rows were deleted; there may be more if it is `batch`.
    func delete(_ connection: BlockingConnection) throws(PostgresError) -> Int {
        try connection.run(
            """
            DELETE FROM \(table) WHERE key = ANY (ARRAY(SELECT key FROM \(table)
                WHERE \(condition) least($1::bigint, floor(extract(epoch FROM now()))::bigint) - $2::bigint
                ORDER BY \(column) LIMIT \(Self.batch) FOR UPDATE SKIP LOCKED))
            """, [.bigint(now), .bigint(age)]
        ).changedCount
    }
}
#endif
