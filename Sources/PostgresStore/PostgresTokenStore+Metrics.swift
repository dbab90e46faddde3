#if PostgreSQL
internal import Synchronization
internal import System
package import TokenStore

extension PostgresTokenStore {
    package var metrics: StoreMetrics {
        let counted = state.metrics
        return StoreMetrics(
            writes: counted.writes.load(ordering: .relaxed),
            queuedBytes: state.waitingBytes.load(ordering: .relaxed), queueLimit: state.queueLimit,
            commitTime: counted.roundTrip(.write), groupSize: counted.groupSize,
            expired: counted.expired.load(ordering: .relaxed),
            isExpiryHeld: counted.isExpiryHeld.load(ordering: .relaxed),
            sealingKey: state.sealing.ring?.active.number,
            unreadableReads: counted.unreadableReads.load(ordering: .relaxed), remote: remote)
    }

    private var remote: RemoteStoreMetrics {
        let (counted, primary, open) = (state.metrics, state.hosts.primary?.description, state.connections)
        var remote = RemoteStoreMetrics(
            durability: options.durability, readTime: counted.roundTrip(.read), proofTime: counted.roundTrip(.proof))
        remote.hosts = state.hosts.list(open)
        remote.connections.open = open.values.reduce(0, +)
        remote.connections.pending = counted.pendingConnections.load(ordering: .relaxed)
        remote.connections.wanted = counted.wantedConnections.load(ordering: .relaxed)
        remote.waitingRequests = state.waitingRequests.load(ordering: .relaxed)
        remote.requestLimit = options.requestLimit
        remote.refusedByCount = counted.refusedByCount.load(ordering: .relaxed)
        remote.refusedByBytes = counted.refusedByBytes.load(ordering: .relaxed)
        remote.dropped = counted.dropped.load(ordering: .relaxed)
        remote.retries = counted.retries
        remote.failovers = counted.failovers.load(ordering: .relaxed)
        let lastFailover = counted.lastFailover.load(ordering: .relaxed)
        remote.lastFailover = lastFailover > 0 ? lastFailover : nil
        remote.timeline = primary.flatMap { $0.timeline > 0 ? $0.timeline : nil }
        remote.proofs = counted.proofs.load(ordering: .relaxed)
        remote.failedProofs = counted.failedProofs.load(ordering: .relaxed)
        remote.heldReads = counted.heldReads.load(ordering: .relaxed)
        remote.proofAge = counted.proofAge(at: .now)
        remote.unacknowledged = counted.unacknowledged.load(ordering: .relaxed)
        remote.clockDifference = primary.map { Double($0.clockDifference) / 1e6 }
        remote.usesTLS = primary?.usesTLS
        remote.isSweeper = counted.isSweeper.load(ordering: .relaxed)
        remote.missingKeys = counted.missingKeys.load(ordering: .relaxed)
        return remote
    }
}
#endif
