internal import Synchronization

/// What the writer and the sessions of a store know of one another.
///
/// Any thread.
final class StoreState: Sendable {
    /// Grows by one when a commit begins and by one when it is over, before anybody is told of it: odd while one is under
    /// way.
    let commitCount = Atomic<UInt64>(0)
    /// How often the database was opened; sessions that were opened before open theirs again.
    let generation = Atomic<UInt64>(1)
    /// False while the files of the store are not where they were.
    let isInPlace = Atomic<Bool>(true)
    /// Rows that did not open when they were asked for, since the start.
    let unreadableCount = Atomic<Int>(0)
    /// Why writes fail; nil while they do not.
    private let writeFault = Mutex<StoreError?>(nil)
    /// One backup at a time.
    let isBackingUp = Atomic<Bool>(false)
    let metrics = StoreMetrics()
    let sealing: Sealing
    let retention: Retention
    let cache: TokenCache

    init(sealing: Sealing, retention: Retention, cacheLimit: Int) {
        self.sealing = sealing
        self.retention = retention
        cache = TokenCache(limit: cacheLimit)
    }

    /// Why the last write failed, or the next one would; nil when it is over.
    var fault: StoreError? {
        get { writeFault.withLock { $0 } }
        set { writeFault.withLock { $0 = newValue } }
    }
}
