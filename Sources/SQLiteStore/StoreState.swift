internal import Synchronization
internal import TokenStore

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
    /// Reads that have failed for the database's sake; nil while they do not.
    private let failedReads = Mutex<FailedReads?>(nil)
    /// One backup at a time.
    let isBackingUp = Atomic<Bool>(false)
    let metrics = WriterMetrics()
    let sealing: Sealing
    private let writeObserver = Mutex<(any WriteObserver)?>(nil)
    private let currentRetention: Mutex<Retention>
    /// Whether that keeps everything for ever; apart from it, for whoever asks with each request.
    private let isRetentionUnlimited: Atomic<Bool>

    init(sealing: Sealing, retention: Retention) {
        self.sealing = sealing
        currentRetention = Mutex(retention)
        isRetentionUnlimited = Atomic(retention.isUnlimited)
    }

    /// Learns of all changes to tokens; nil for none.
    var observer: (any WriteObserver)? {
        get { writeObserver.withLock { $0 } }
        set { writeObserver.withLock { $0 = newValue } }
    }

    /// Which tokens are kept for how long.
    var retention: Retention { currentRetention.withLock { $0 } }

    /// Whether everything is kept for ever.
    var keepsForever: Bool { isRetentionUnlimited.load(ordering: .relaxed) }

    /// Goes by another retention from now on.
    func change(_ retention: Retention) {
        currentRetention.withLock { $0 = retention }
        isRetentionUnlimited.store(retention.isUnlimited, ordering: .relaxed)
        // Afterwards: a read that has gone by the former one has begun before this.
        observer?.didChangeEverything()
    }

    /// Why the last write failed, or the next one would; nil when it is over.
    var fault: StoreError? {
        get { writeFault.withLock { $0 } }
        set { writeFault.withLock { $0 = newValue } }
    }

    /// Reads that clients were told had failed.
    struct FailedReads {
        var error: StoreError
        var last: ContinuousClock.Instant
        var count: Int
    }

    var readFaults: FailedReads? { failedReads.withLock { $0 } }

    /// Counts a read that has failed, unless that was for the moment only: readiness goes by it.
    func noteFailedRead(_ error: StoreError) {
        guard case .read(let fault) = error, !fault.mayRetry, !fault.isOfOneToken else { return }
        failedReads.withLock { reads in
            reads = FailedReads(error: error, last: .now, count: (reads?.count ?? 0) + 1)
        }
    }

    func endReadFaults() {
        failedReads.withLock { $0 = nil }
    }
}
