#if PostgreSQL
internal import Metrics
internal import Synchronization
internal import System

/// The counters; any thread may add to them.
final class PostgresMetrics: Sendable {
    let writes = Atomic<UInt64>(0)
    let unreadableReads = Atomic<Int>(0)
    let expired = Atomic<UInt64>(0)
    /// Keys that the store names and this server lacks.
    let missingKeys = Atomic<Int>(0)
    /// Requests that were refused because too many waited, or too many bytes.
    let refusedByCount = Atomic<UInt64>(0)
    let refusedByBytes = Atomic<UInt64>(0)
    /// Requests that were not sent, as their clients had disconnected before.
    let dropped = Atomic<UInt64>(0)
    /// Writes that were committed with a warning.
    let unacknowledged = Atomic<UInt64>(0)

    /// Connections that handles want, and attempts to make one that are under way.
    let wantedConnections = Atomic<Int>(0)
    let pendingConnections = Atomic<Int>(0)

    // MARK: - Failovers

    let failovers = Atomic<UInt64>(0)
    /// When another server was last found to be the primary, in seconds since 1970; 0 for never.
    let lastFailover = Atomic<Int64>(0)

    func noteFailover(at unixTime: Int64) {
        failovers.add(1, ordering: .relaxed)
        lastFailover.store(unixTime, ordering: .relaxed)
    }

    // MARK: - Proofs

    let proofs = Atomic<UInt64>(0)
    let failedProofs = Atomic<UInt64>(0)
    /// Reads whose answers were held back until there was a proof.
    let heldReads = Atomic<UInt64>(0)
    /// When the last proof on any connection began, in the clock's nanoseconds; 0 if there was none.
    private let lastProof = Atomic<UInt64>(0)

    /// - Parameter began: When the commit was sent.
    func noteProof(begunAt began: MonotonicTime, isProven: Bool = true) {
        guard isProven else {
            failedProofs.add(1, ordering: .relaxed)
            return
        }
        proofs.add(1, ordering: .relaxed)
        lastProof.max(began.nanoseconds, ordering: .relaxed)
    }

    /// Seconds since the last proof began; nil if there was none.
    func proofAge(at now: MonotonicTime) -> Double? {
        let began = lastProof.load(ordering: .relaxed)
        guard began > 0 else { return nil }
        return Double((now - MonotonicTime(nanoseconds: began)).count) / 1e9
    }

    // MARK: - Groups

    /// What a group of operations is for.
    enum GroupKind: Int {
        case read, write, proof
    }

    private let times = Mutex([Histogram.latency(), .latency(), .latency()])
    private let groupSizes = Mutex(Histogram.sizes())

    /// - Parameter nanoseconds: From the moment a group was sent to its answer.
    func noteRoundTrip(_ kind: GroupKind, _ nanoseconds: UInt64) {
        times.withLock { $0[kind.rawValue].add(nanoseconds) }
    }

    func roundTrip(_ kind: GroupKind) -> Histogram.Reading { times.withLock { $0[kind.rawValue].reading } }

    /// - Parameter count: Operations of a group that has writes.
    func noteGroup(_ count: Int) {
        groupSizes.withLock { $0.add(UInt64(count)) }
    }

    var groupSize: Histogram.Reading { groupSizes.withLock(\.reading) }

    // MARK: - Repetitions

    /// Those that are expected are there from the beginning, so that their first increase can be seen.
    private let retryCounts = Mutex<[String: UInt64]>(
        ["connection": 0, SQLState.serializationFailure.code: 0, SQLState.deadlock.code: 0])

    /// - Parameter state: The code of the error after which a request is sent again; nil for a lost connection.
    func noteRetry(_ state: SQLState?) {
        let cause = state?.code ?? "connection"
        // Codes come from the server: a limit on how many different ones are kept.
        retryCounts.withLock { counts in
            if counts[cause] != nil || counts.count < 64 { counts[cause, default: 0] += 1 }
        }
    }

    /// Requests that were sent again, by the SQLSTATE that was the cause, or `connection`.
    var retries: [(cause: String, count: UInt64)] {
        retryCounts.withLock(\.self).sorted { $0.key < $1.key }.map { ($0.key, $0.value) }
    }
}
#endif
