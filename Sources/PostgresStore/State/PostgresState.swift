#if PostgreSQL
internal import Cryptography
internal import Metrics
internal import Synchronization
internal import TokenStore

/// What the handles and the administrator of a store share.
///
/// Any thread.
final class PostgresState: Sendable {
    let sealing: Sealing
    let versions: VersionClock
    let metrics = PostgresMetrics()
    /// Tells operators what they should know.
    let report: @Sendable (StoreEvent) -> Void
    private let currentRetention: Mutex<Retention>
    /// Requests of all handles that wait for the database, and the bytes of their tokens.
    let waitingRequests = Atomic<Int>(0)
    let waitingBytes = Atomic<Int>(0)

    init(
        sealing: Sealing, versions: VersionClock, retention: Retention, report: @escaping @Sendable (StoreEvent) -> Void
    ) {
        self.sealing = sealing
        self.versions = versions
        self.report = report
        currentRetention = Mutex(retention)
    }

    var retention: Retention { currentRetention.withLock(\.self) }

    func change(_ retention: Retention) {
        currentRetention.withLock { $0 = retention }
    }
}

/// What is counted; any thread adds.
final class PostgresMetrics: Sendable {
    let writes = Atomic<UInt64>(0)
    let unreadableReads = Atomic<Int>(0)
    let expired = Atomic<UInt64>(0)
    let failovers = Atomic<UInt64>(0)
    let fences = Atomic<UInt64>(0)
    /// From the moment a group is sent to its answer, in nanoseconds.
    let roundTrip = Mutex(Histogram.latency())
    let groupSize = Mutex(Histogram.sizes())
    /// Requests that were sent again, by the SQLSTATE that was the cause; `lost` for lost connections.
    private let retryCounts = Mutex<[String: UInt64]>([:])

    func noteRetry(_ cause: String) {
        // Codes come from the server: a limit on how many different ones are kept.
        retryCounts.withLock { counts in
            if counts[cause] != nil || counts.count < 64 { counts[cause, default: 0] += 1 }
        }
    }

    var retries: [String: UInt64] { retryCounts.withLock(\.self) }
}
#endif
