import Metrics
import Synchronization
import System
import TokenStore

/// State that the writer, the handles and the administrator of a store share.
///
/// Any thread.
final class StoreState: Sendable {
    /// Incremented when a commit begins and when it ends, before its outcome is reported: odd during a commit.
    let commitCount = Atomic<UInt64>(0)
    /// How often the database was opened; handles open their reader again when it changes.
    let generation = Atomic<UInt64>(1)
    /// Rows that could not be decrypted when they were read, since the start.
    let unreadableCount = Atomic<Int>(0)
    /// Why writes fail; nil while they do not.
    private let writeFault = Mutex<StoreError?>(nil)
    /// Reads that have failed because of the database; nil if none has.
    private let failedReads = Mutex<FailedReads?>(nil)
    let damagedTokens = DamagedRows()
    let damagedSessions = DamagedRows()
    /// Whether a backup is running; there is one at a time.
    let isBackingUp = Atomic<Bool>(false)
    /// How the last backups ended; nil if there was none.
    let lastBackup: Mutex<BackupRecord?>
    let metrics = WriterMetrics()
    let clock = StoreClock()
    let sealing: Sealing
    private let writeObserver = Mutex<(any WriteObserver)?>(nil)
    private let currentRetention: Mutex<Retention>
    /// Whether `currentRetention` keeps everything for ever; separate, because every read asks for it.
    private let isRetentionUnlimited: Atomic<Bool>

    init(sealing: Sealing, retention: Retention, lastBackup: BackupRecord? = nil) {
        self.lastBackup = Mutex(lastBackup)
        self.sealing = sealing
        currentRetention = Mutex(retention)
        isRetentionUnlimited = Atomic(retention.isUnlimited)
    }

    /// Is told of all changes to tokens; nil if there is no observer.
    var observer: (any WriteObserver)? {
        get { writeObserver.withLock { $0 } }
        set { writeObserver.withLock { $0 = newValue } }
    }

    /// Which tokens are kept for how long.
    var retention: Retention { currentRetention.withLock { $0 } }

    /// Whether everything is kept for ever.
    var keepsForever: Bool { isRetentionUnlimited.load(ordering: .relaxed) }

    /// Puts another retention into force.
    func change(_ retention: Retention) {
        currentRetention.withLock { $0 = retention }
        isRetentionUnlimited.store(retention.isUnlimited, ordering: .relaxed)
        // Last: no read that begins after this call may use the former retention.
        observer?.didChangeEverything()
    }

    /// Why the last write failed, or the next one will; nil when writes work.
    var fault: StoreError? {
        get { writeFault.withLock { $0 } }
        set { writeFault.withLock { $0 = newValue } }
    }

    /// Failed reads that were reported to clients.
    struct FailedReads {
        var error: StoreError
        var last: ContinuousClock.Instant
        var count: Int
    }

    var readFaults: FailedReads? { failedReads.withLock { $0 } }

    /// Counts a failed read, which makes the server not ready, unless its cause passes by itself or concerns one token.
    ///
    /// - Parameters:
    ///   - error: Why it failed.
    ///   - isOfOneToken: Asked, if a damaged page is the cause, whether other rows may be sound.
    func noteFailedRead(_ error: StoreError, isOfOneToken: () -> Bool = { true }) {
        guard case .read(let fault) = error, !fault.mayRetry else { return }
        if fault.isOfOneToken {
            unreadableCount.add(1, ordering: .relaxed)
            if isOfOneToken() { return }
        }
        failedReads.withLock { reads in
            reads = FailedReads(error: error, last: .now, count: (reads?.count ?? 0) + 1)
        }
    }

    func endReadFaults() {
        failedReads.withLock { $0 = nil }
    }
}

/// The writer's counters; any thread may read them.
final class WriterMetrics: Sendable {
    /// Tokens that were made durable.
    let writes = Counter()
    /// Time of each group's transaction, including the sync; failed groups count as well.
    let commitTime = Histogram.latency()
    /// Time of each sync of the WAL, at least one for each group; failed ones count as well.
    let syncTime = Histogram.latency()
    /// Changes of a group.
    let groupSize = Histogram.sizes()
    /// Tokens that were deleted because they had expired.
    let expired = Counter()
    /// Tokens in the store, as of the last write.
    let tokens = Counter()
    /// Sessions in the store, as of the last write.
    let sessions = Counter()

    func note(tokens: Int, sessions: Int) {
        self.tokens.set(UInt64(tokens))
        self.sessions.set(UInt64(sessions))
    }

    func noteGroup(_ changes: [PendingChange], took duration: Duration) {
        commitTime.add(duration)
        groupSize.add(UInt64(changes.count))
        var stored: UInt64 = 0
        for change in changes { if case .success(.stored) = change.outcome { stored += 1 } }
        writes.add(stored)
    }
}

extension Histogram {
    /// Counts a time, in nanoseconds.
    func add(_ duration: Duration) {
        add(Nanoseconds(duration).count)
    }
}
