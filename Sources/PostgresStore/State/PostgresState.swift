#if PostgreSQL
internal import Cryptography
internal import Metrics
internal import Synchronization
internal import System
internal import TokenStore

/// What the handles and the administrator of a store share.
///
/// Any thread.
final class PostgresState: Sendable {
    let sealing: Sealing
    let versions: VersionClock
    let metrics = PostgresMetrics()
    let proofs = Proofs()
    /// Tells operators what they should know.
    let report: @Sendable (StoreEvent) -> Void
    private let currentRetention: Mutex<Retention>
    /// Requests of all handles that wait for the database, and the bytes of their tokens.
    let waitingRequests = Atomic<Int>(0)
    let waitingBytes = Atomic<Int>(0)
    /// Bytes of tokens that may wait to be written.
    let queueLimit: Int
    let isClosed = Atomic<Bool>(false)

    init(
        sealing: Sealing, versions: VersionClock, options: StoreOptions,
        report: @escaping @Sendable (StoreEvent) -> Void
    ) {
        self.sealing = sealing
        self.versions = versions
        self.report = report
        queueLimit = options.queueLimit
        currentRetention = Mutex(options.retention)
    }

    // MARK: - Health

    /// Whether and why requests fail at the moment.
    private struct Health {
        /// Connections that can be used.
        var connections = 0
        /// When the last of them was lost, or the store opened.
        var withoutSince: MonotonicTime? = .now
        var lastFault = StoreFault("PostgreSQL: no connection was made yet", mayRetry: true)
        /// Requests that have failed since the last one that has not.
        var failedWrites = 0
        var failedReads = 0
    }

    private let health = Mutex(Health())
    /// How long the server counts as ready without a connection, so that a short failover takes it out of no load balancer.
    static let grace = Nanoseconds(.seconds(3))

    /// Why requests fail; nil while they do not, or have only begun to.
    var fault: StoreError? {
        health.withLock { health in
            guard let since = health.withoutSince, (MonotonicTime.now - since).count > Self.grace.count else {
                return nil
            }
            return .unavailable(health.lastFault)
        }
    }

    /// The last failure of a connection or a statement.
    var lastFault: StoreFault { health.withLock { $0.lastFault } }

    var connectionCount: Int { health.withLock { $0.connections } }

    func noteConnected() {
        health.withLock { health in
            health.connections += 1
            health.withoutSince = nil
        }
    }

    func noteLost(_ error: PostgresError) {
        health.withLock { health in
            health.connections -= 1
            if health.connections == 0 { health.withoutSince = .now }
            health.lastFault = StoreFault(error)
        }
    }

    /// A search for the primary has failed.
    func noteNotFound(_ error: PostgresError) {
        health.withLock { $0.lastFault = StoreFault(error) }
    }

    /// Requests were answered.
    func noteSuccess(isWrite: Bool) {
        let failed = health.withLock { health in
            let failed = isWrite ? health.failedWrites : health.failedReads
            if failed > 0 { if isWrite { health.failedWrites = 0 } else { health.failedReads = 0 } }
            return failed
        }
        if failed > 0 { report(isWrite ? .writesRecovered(failed: failed) : .readsRecovered(failed: failed)) }
    }

    /// A request has failed because of the database or the way to it.
    func noteFailure(_ fault: StoreFault, isWrite: Bool) {
        let isFirst = health.withLock { health in
            health.lastFault = fault
            if isWrite { health.failedWrites += 1 } else { health.failedReads += 1 }
            return (isWrite ? health.failedWrites : health.failedReads) == 1
        }
        if isFirst { report(isWrite ? .writesFail(.write(fault)) : .readsFail(.read(fault))) }
    }

    // MARK: - Retention

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
    /// Whether this server would delete what has expired, and does not, as its clock has jumped.
    let isExpiryHeld = Atomic<Bool>(false)
    let failovers = Atomic<UInt64>(0)
    let fences = Atomic<UInt64>(0)
    /// From the moment a group is sent to its answer.
    private let roundTrips = Mutex(Histogram.latency())
    private let groupSizes = Mutex(Histogram.sizes())
    /// Requests that were sent again, by the SQLSTATE that was the cause; `lost` for lost connections.
    private let retryCounts = Mutex<[String: UInt64]>([:])

    /// - Parameter nanoseconds: From the moment a group was sent to its answer.
    func noteRoundTrip(_ nanoseconds: UInt64) {
        roundTrips.withLock { $0.add(nanoseconds) }
    }

    var roundTrip: Histogram.Reading { roundTrips.withLock { $0.reading } }

    /// - Parameter count: Operations of a group that has writes.
    func noteGroup(_ count: Int) {
        groupSizes.withLock { $0.add(UInt64(count)) }
    }

    var groupSize: Histogram.Reading { groupSizes.withLock { $0.reading } }

    func noteRetry(_ cause: String) {
        // Codes come from the server: a limit on how many different ones are kept.
        retryCounts.withLock { counts in
            if counts[cause] != nil || counts.count < 64 { counts[cause, default: 0] += 1 }
        }
    }

    var retries: [String: UInt64] { retryCounts.withLock(\.self) }
}
#endif
