internal import Metrics
internal import Synchronization
internal import System
package import TokenStore

/// What the writer's thread counts; any thread reads it.
final class WriterMetrics: Sendable {
    /// Tokens that were made durable.
    let writes = Counter()
    /// From the beginning of a group's transaction to its end, the sync of the disk included; failed groups as well.
    let commitTime = Histogram.latency()
    /// Of the WAL's syncs, one for each group at least; failed ones as well.
    let syncTime = Histogram.latency()
    /// Tokens of a group.
    let groupSize = Histogram.sizes()
    /// Tokens that were dropped because their time was over.
    let expired = Counter()
    /// 1 while no token is dropped because the clock has jumped, otherwise 0.
    let expiryHeld = Counter()
    /// Tokens in the store as of the last look.
    let tokens = Counter()

    func noteGroup(_ outcomes: [Result<Void, StoreError>], took duration: Duration) {
        commitTime.add(duration)
        groupSize.add(UInt64(outcomes.count))
        var stored: UInt64 = 0
        for outcome in outcomes { if case .success = outcome { stored += 1 } }
        writes.add(stored)
    }
}

extension Histogram {
    /// Counts a time, in nanoseconds.
    func add(_ duration: Duration) {
        add(Nanoseconds(duration).count)
    }
}

extension SQLiteTokenStore {
    package var metrics: StoreMetrics {
        let counted = state.metrics
        let keys = state.sealing.ring?.keys ?? []
        return StoreMetrics(
            writes: counted.writes.value, tokens: counted.tokens.value,
            queuedBytes: writerThread.admission.waitingBytes,
            commitTime: counted.commitTime.reading, syncTime: counted.syncTime.reading,
            groupSize: counted.groupSize.reading, expired: counted.expired.value,
            isExpiryHeld: counted.expiryHeld.value != 0, databaseBytes: FileStatus.size(of: path),
            walBytes: FileStatus.size(of: path + "-wal"),
            keySeals: keys.map { ($0.number, state.sealing.seals.count(of: $0.number).value) },
            unreadableReads: state.unreadableCount.load(ordering: .relaxed)
        )
    }
}
