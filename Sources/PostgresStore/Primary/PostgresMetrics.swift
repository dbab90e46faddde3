#if PostgreSQL
internal import Metrics
internal import Synchronization
internal import System
internal import TokenStore

/// What a store counts.
struct PostgresCounts: Sendable {
    var store = StoreMetrics()
    var remote: RemoteStoreMetrics
    /// From the moment a group was sent to its answer.
    private var times: [GroupKind: Histogram] = [.read: .latency(), .write: .latency(), .proof: .latency()]
    /// Operations of each group that has writes.
    var groupSizes = Histogram.sizes()
    /// When the last proof on any connection began; nil if there was none.
    private var lastProof: MonotonicTime?
    /// Requests that were to be sent again, by the cause; expected ones are there from the beginning, so that their first increase is seen.
    private var retries: [String: UInt64] = [
        "connection": 0, SQLState.serializationFailure.code: 0, SQLState.deadlock.code: 0,
    ]

    init(_ postgres: PostgresOptions) {
        let none = Histogram.latency().reading
        remote = RemoteStoreMetrics(durability: postgres.durability, readTime: none, proofTime: none)
        remote.requestLimit = postgres.requestLimit
    }

    /// What a group of operations is for.
    enum GroupKind {
        case read, write, proof
    }

    mutating func noteRoundTrip(_ kind: GroupKind, _ time: Nanoseconds) {
        times[kind]?.add(time.count)
    }

    /// - Parameter began: When the commit was sent.
    mutating func noteProof(begunAt began: MonotonicTime) {
        remote.proofs += 1
        lastProof = max(lastProof ?? began, began)
    }

    /// - Parameter state: The code of the error after which a request is sent again; nil for a lost connection.
    mutating func noteRetry(_ state: SQLState?) {
        let cause = state?.code ?? "connection"
        // Codes come from the server: a limit on how many different ones are kept.
        if retries[cause] != nil || retries.count < 64 { retries[cause, default: 0] += 1 }
    }

    /// The counters, where nothing but what is counted is filled in.
    fileprivate var reading: (StoreMetrics, RemoteStoreMetrics) {
        var (store, remote) = (store, remote)
        (store.commitTime, store.groupSize) = (times[.write]?.reading, groupSizes.reading)
        remote.readTime = times[.read]?.reading ?? remote.readTime
        remote.proofTime = times[.proof]?.reading ?? remote.proofTime
        remote.proofAge = lastProof.map { Double((MonotonicTime.now - $0).count) / 1e9 }
        remote.retries = retries.sorted { $0.key < $1.key }.map { ($0.key, $0.value) }
        return (store, remote)
    }
}

extension PostgresState {
    func count(_ change: (inout PostgresCounts) -> Void) {
        counts.withLock { change(&$0) }
    }

    /// What was counted, and what is so at this moment.
    var metrics: StoreMetrics {
        var (store, remote) = counts.withLock(\.reading)
        store.queuedBytes = waitingBytes.load(ordering: .relaxed)
        store.queueLimit = queueLimit
        store.isExpiryHeld = clock.isHoldingExpiry
        store.sealingKey = sealing.ring?.active.number
        let (primary, open) = (hosts.primary, connections)
        remote.hosts = hosts.list(open)
        remote.connections.open = open.values.reduce(0, +)
        remote.waitingRequests = waitingRequests.load(ordering: .relaxed)
        remote.timeline = primary?.timeline
        remote.clockDifference = primary.map { Double($0.clockDifference) / 1e6 }
        remote.usesTLS = primary?.usesTLS
        store.remote = remote
        return store
    }
}
#endif
