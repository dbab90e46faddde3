#if PostgreSQL
internal import Synchronization
internal import System
internal import TokenStore

/// Deletes what has expired, in one server at a time of all that use the database.
///
/// Clients do not wait for it: handles hide tokens from the moment at which they expire. Rows are deleted a few at a time, and
/// between two such steps the database has as long a rest.
///
/// Any thread.
final class Sweeper: Sendable {
    private let sessions: PrimarySessions
    private let state: PostgresState
    private let times: Times
    private let holder: [UInt8]
    private let isStopped = Atomic<Bool>(false)
    /// Signalled to end a wait early.
    private let alarm = Semaphore()
    private let finished = Semaphore()

    struct Times: Sendable {
        /// The time between two looks at the lease.
        var beat = Duration.seconds(10)
        /// How long another server's beat is waited for.
        var patience = Duration.seconds(30)
        /// The longest time between two deletions, if something expires.
        var interval = Duration.seconds(60)
        /// How long one step may take.
        var step = Duration.seconds(10)
    }

    /// Rows that are deleted in one step.
    private static let batch = 256
    static let leaseName = "sweeper"

    /// - Parameters:
    ///   - sessions: Used one at a time.
    ///   - state: Has the retention; gets the counts.
    ///   - holder: This server, as it is registered.
    ///   - times: Shorter ones for tests.
    init(_ sessions: PrimarySessions, _ state: PostgresState, holder: [UInt8], times: Times = Times()) {
        self.sessions = sessions
        self.state = state
        self.holder = holder
        self.times = times
    }

    /// Begins, on a thread of its own.
    func start() {
        NamedThread.startOrExit("sweeper") { [self] in
            var work = Work(lease: Lease(Self.leaseName, holder: holder, patience: times.patience))
            while !isStopped.load(ordering: .acquiring) {
                let pause = run(&work)
                state.metrics.isSweeper.store(work.isHolder, ordering: .relaxed)
                wait(pause)
            }
            if work.isHolder { try? work.lease.release(sessions, within: .seconds(1)) }
            state.metrics.isExpiryHeld.store(false, ordering: .relaxed)
            state.metrics.isSweeper.store(false, ordering: .relaxed)
            finished.signal()
        }
    }

    /// Has it look at once, as another retention is in force.
    func wake() {
        alarm.signal()
    }

    /// Ends it; waits for that, though not for a database that does not answer.
    func stop() {
        isStopped.store(true, ordering: .releasing)
        alarm.signal()
        finished.wait(atMost: .seconds(2))
    }

    private func wait(_ time: Duration) {
        alarm.wait(atMost: time)
    }

    // MARK: - The thread

    /// The thread's state between rounds.
    private struct Work {
        var lease: Lease
        var isHolder = false
        var nextBeat = MonotonicTime.now
        /// Operators were told that nothing is deleted, and not yet that deleting continues.
        var hasReportedHold = false
        var nextDeletion = MonotonicTime.now
        /// The retention of the last deletion.
        var retention: Retention?
        /// Why the last round failed; nil if it has not.
        var fault: StoreError?
        /// The indexes that exist, and those whose absence was reported to operators.
        var indexes: Set<RetentionIndex> = []
        var missingIndexes: Set<RetentionIndex> = []
    }

    /// Does what is due.
    ///
    /// - Returns: How long to wait until the next round.
    private func run(_ work: inout Work) -> Duration {
        do throws(StoreError) {
            try beat(&work)
            if work.isHolder, work.nextDeletion <= .now || work.retention != state.retention {
                try sweep(&work)
                work.fault = nil
            }
        } catch {
            // Otherwise it is the database that cannot be reached, of which clients' requests tell.
            if !error.mayRetry, work.fault == nil {
                state.report(
                    .own(StoreNotice(.warning, "what has expired is not deleted for now, though hidden: \(error)")))
            }
            work.fault = error
            work.isHolder = false
            return times.beat
        }
        let next = work.isHolder ? min(work.nextBeat, work.nextDeletion) : work.nextBeat
        return .nanoseconds((next - .now).count)
    }

    private func beat(_ work: inout Work) throws(StoreError) {
        guard work.nextBeat <= .now else { return }
        work.isHolder = try work.lease.take(sessions, within: times.step)
        work.nextBeat = .now + Nanoseconds(times.beat)
        state.clock.use { $0.look(at: .now) }
        if !work.isHolder { stopHolding(&work, isTold: false) }
    }

    private func sweep(_ work: inout Work) throws(StoreError) {
        let retention = state.retention
        let reading = ExpiryClock.Reading.now
        state.clock.use { $0.look(at: reading) }
        let hasSessions = try sessions.perform(.reading, within: times.step, repeats: true) {
            (session, deadline) throws(PostgresError) in
            try session.run("SELECT 1 FROM session LIMIT 1", until: deadline) { (result) throws(PostgresError) in
                result.rowCount > 0
            }
        }
        let interval = retention.deletionInterval(hasSessions: hasSessions)
        if let time = state.clock.use({ $0.due(isExpiring: true) }) {
            try store(clockLook: time)
            state.clock.use { $0.noteSaved(time) }
        }
        work.retention = retention
        work.nextDeletion = .now + Nanoseconds(min(interval ?? times.interval, times.interval))
        // Without a retention nothing is deleted, so no deletion is held back either.
        guard mayDelete(&work, isExpiring: interval != nil) else { return }
        var count = 0
        defer { if count > 0 { state.report(.expired(count: count)) } }
        for rows in ExpiredRows.all(retention, at: reading.wall) where try hasIndex(for: rows, &work) {
            count += try delete(rows, &work)
        }
    }

    /// Whether rows can be found without reading all tokens; tells operators what to do if they cannot.
    private func hasIndex(for rows: ExpiredRows, _ work: inout Work) throws(StoreError) -> Bool {
        guard let index = rows.index, !work.indexes.contains(index) else { return true }
        let isThere = try sessions.perform(.reading, within: times.step, repeats: true) {
            (session, deadline) throws(PostgresError) in try index.isThere(session, until: deadline)
        }
        if isThere {
            work.indexes.insert(index)
        } else if work.missingIndexes.insert(index).inserted {
            let text = """
                expired tokens are hidden but not deleted, as the database has no index \(index.rawValue) to find them by: \
                run token-cache migrate with this configuration, as the role that owns the tables
                """
            state.report(.own(StoreNotice(.warning, text)))
        }
        return isThere
    }

    /// Deletes all of a kind; returns how many tokens.
    private func delete(_ rows: ExpiredRows, _ work: inout Work) throws(StoreError) -> Int {
        var (tokens, hasMore) = (0, true)
        while hasMore, work.isHolder, !isStopped.load(ordering: .acquiring) {
            let began = MonotonicTime.now
            let step = try sessions.perform(within: times.step, repeats: true) {
                (session, deadline) throws(PostgresError) in
                try rows.delete(upTo: Self.batch, session, until: deadline)
            }
            if rows.areTokens {
                tokens += step.count
                state.metrics.expired.add(UInt64(step.count), ordering: .relaxed)
            }
            hasMore = step.hasMore
            guard hasMore else { break }
            wait(.nanoseconds((MonotonicTime.now - began).count))
            try beat(&work)
        }
        return tokens
    }

    // MARK: - The clock

    private func store(clockLook time: Int64) throws(StoreError) {
        try sessions.perform(within: times.step, repeats: true) { (session, deadline) throws(PostgresError) in
            var parameters = Parameters()
            parameters.append(time)
            try session.run("UPDATE store SET looked_at = $1::bigint WHERE one = 1", parameters, until: deadline)
        }
    }

    /// Whether the clock is trusted to delete; reports when that changes.
    private func mayDelete(_ work: inout Work, isExpiring: Bool) -> Bool {
        let (holdsExpiry, deviation) = state.clock.use { ($0.holdsExpiry, $0.deviation) }
        if holdsExpiry, isExpiring, !work.hasReportedHold {
            work.hasReportedHold = true
            state.metrics.isExpiryHeld.store(true, ordering: .relaxed)
            state.report(.expiryHeld(seconds: deviation))
        } else if !holdsExpiry || !isExpiring {
            stopHolding(&work, isTold: isExpiring)
        }
        return !holdsExpiry
    }

    private func stopHolding(_ work: inout Work, isTold: Bool) {
        guard work.hasReportedHold else { return }
        work.hasReportedHold = false
        state.metrics.isExpiryHeld.store(false, ordering: .relaxed)
        if isTold { state.report(.expiryGoesOn) }
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

    /// The condition for an expired row, and the column whose index finds it.
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
