#if PostgreSQL
import Metrics
import Synchronization
import System
import TokenStore

/// What a store counts.
struct PostgresCounts: Sendable {
    var store = StoreMetrics()
    var remote: RemoteStoreMetrics
    /// The times from sending a group of operations to its answer.
    private var times: [GroupKind: Histogram] = [.read: .latency(), .write: .latency(), .proof: .latency()]
    /// How many operations each group with writes has.
    var groupSizes = Histogram.sizes()
    /// When the last proof on any connection began; nil if there was none.
    private var lastProof: MonotonicTime?
    /// Requests that had to be sent again, by cause.
    ///
    /// The expected causes begin with 0, so that their first increase is seen.
    private var retries: [String: UInt64] = [
        "connection": 0, SQLState.serializationFailure.code: 0, SQLState.deadlock.code: 0,
        SQLState.lockNotAvailable.code: 0,
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
        // The codes come from the server, so their number is limited.
        if retries[cause] != nil || retries.count < 64 { retries[cause, default: 0] += 1 }
    }

    /// The counted values; the others are not filled in.
    fileprivate var reading: (StoreMetrics, RemoteStoreMetrics) {
        var (store, remote) = (store, remote)
        (store.commitTime, store.groupSize) = (times[.write]?.reading, groupSizes.reading)
        remote.readTime = times[.read]?.reading ?? remote.readTime
        remote.proofTime = times[.proof]?.reading ?? remote.proofTime
        remote.proofAge = lastProof.map { Double((SystemUptime.moment - $0).count) / 1e9 }
        remote.retries = retries.sorted { $0.key < $1.key }.map { ($0.key, $0.value) }
        return (store, remote)
    }
}

extension PostgresState {
    func count(_ change: (inout PostgresCounts) -> Void) {
        counts.withLock { change(&$0) }
    }

    /// The counted values, and those of this moment.
    var metrics: StoreMetrics {
        var (store, remote) = counts.withLock(\.reading)
        store.queuedBytes = waitingBytes.load(ordering: .relaxed)
        store.queueLimit = queueLimit
        store.walk = walk
        store.isExpiryHeld = clock.isHoldingExpiry
        store.sealingKey = refusalOfOperators == nil ? sealing.ring.active.number : nil
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
