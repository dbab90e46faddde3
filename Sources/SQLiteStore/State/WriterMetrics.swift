internal import Metrics
internal import Synchronization
internal import System
internal import TokenStore

/// The writer's counters; any thread may read them.
final class WriterMetrics: Sendable {
    /// Tokens that were made durable.
    let writes = Counter()
    /// Time of each group's transaction, including the sync; failed groups count as well.
    let commitTime = Histogram.latency()
    /// Time of each sync of the WAL, at least one for each group; failed ones count as well.
    let syncTime = Histogram.latency()
    /// Tokens of a group.
    let groupSize = Histogram.sizes()
    /// Tokens that were deleted because they had expired.
    let expired = Counter()
    /// 1 while no token is deleted because the clock has jumped, otherwise 0.
    let expiryHeld = Counter()
    /// Tokens in the store, as of the last write.
    let tokens = Counter()
    /// Sessions in the store, as of the last write.
    let sessions = Counter()

    func note(tokens: Int, sessions: Int) {
        self.tokens.set(UInt64(tokens))
        self.sessions.set(UInt64(sessions))
    }

    func noteGroup(_ outcomes: [Result<ChangeOutcome, StoreError>], took duration: Duration) {
        commitTime.add(duration)
        groupSize.add(UInt64(outcomes.count))
        var stored: UInt64 = 0
        for outcome in outcomes { if case .success(.stored) = outcome { stored += 1 } }
        writes.add(stored)
    }
}

extension Histogram {
    /// Counts a time, in nanoseconds.
    func add(_ duration: Duration) {
        add(Nanoseconds(duration).count)
    }
}
