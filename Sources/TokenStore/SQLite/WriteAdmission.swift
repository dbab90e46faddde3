internal import Synchronization

/// Decides whether another row may wait for the writer: within limits of bytes and of time.
///
/// A disk that has stopped would otherwise have rows gather until memory is full, and their clients wait for as long.
///
/// Any thread.
final class WriteAdmission: Sendable {
    private let byteLimit: Int
    private let timeLimit: Duration
    private let waiting = Atomic<Int>(0)
    /// When the writer began what it is doing; nil while it rests.
    private let busySince = Mutex<ContinuousClock.Instant?>(nil)
    /// The writer has been at one thing for longer than `timeLimit`; kept apart, as every write asks.
    private let stalled = Atomic<Bool>(false)

    init(byteLimit: Int, timeLimit: Duration) {
        self.byteLimit = byteLimit
        self.timeLimit = timeLimit
    }

    /// Bytes of rows that wait or are being written.
    var waitingBytes: Int { waiting.load(ordering: .relaxed) }

    /// What to say while the writer has been at one thing for too long, as of the last look.
    var stall: StoreOverload? {
        stalled.load(ordering: .relaxed) ? .stalled(limit: timeLimit) : nil
    }

    /// Counts the bytes of a row that is to wait.
    ///
    /// - Returns: Why it may not, and then it is not counted; nil when it may.
    func admit(_ bytes: Int) -> StoreOverload? {
        if let stall { return stall }
        guard waiting.add(bytes, ordering: .relaxed).newValue <= byteLimit else {
            release(bytes)
            return .queue(bytes: byteLimit)
        }
        return nil
    }

    /// Counts bytes that do not wait any more.
    func release(_ bytes: Int) {
        if bytes > 0 { waiting.subtract(bytes, ordering: .relaxed) }
    }

    /// Notes that the writer begins something, or rests.
    func noteBusy(since moment: ContinuousClock.Instant?) {
        busySince.withLock { since in
            since = moment
            if stall != nil { stalled.store(false, ordering: .relaxed) }
        }
    }

    /// Looks whether the writer has been at one thing for too long.
    ///
    /// - Returns: `stall`.
    func lookForStall(at now: ContinuousClock.Instant) -> StoreOverload? {
        busySince.withLock { since in
            guard let since, now - since > timeLimit else { return nil }
            // Under the lock, so that it is not noted of something that has just ended.
            stalled.store(true, ordering: .relaxed)
            return stall
        }
    }
}
