package import Metrics
internal import Synchronization
internal import System
internal import TokenStore

/// What the writer's thread counts; any thread reads it.
package final class StoreMetrics: Sendable {
    /// Tokens that were made durable.
    package let writes = Counter()
    /// From the beginning of a group's transaction to its end, the sync of the disk included; failed groups as well.
    package let commitTime = Histogram.latency()
    /// Of the log's syncs, one for each group at least; failed ones as well.
    package let syncTime = Histogram.latency()
    /// Tokens of a group.
    package let groupSize = Histogram.sizes()
    /// Tokens that were dropped because their time was over.
    package let expired = Counter()
    /// 1 while no token is dropped because the clock has jumped, otherwise 0.
    package let expiryHeld = Counter()
    /// Tokens in the store as of the last look.
    package let tokens = Counter()

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
    package var metrics: StoreMetrics { state.metrics }

    /// Rows that did not open when they were asked for, since the start.
    package var unreadableCount: Int { state.unreadableCount.load(ordering: .relaxed) }

    /// Bytes of the database's file and of its log's; 0 for one that is not there.
    package var fileSizes: (database: Int, log: Int) { (FileStatus.size(of: path), FileStatus.size(of: path + "-wal")) }
}
