import Glibc
import Synchronization
import System
import TokenStore

/// Decides whether another row may wait for the writer, by limits of bytes and of time.
///
/// Without it, while the disk is stalled, rows would fill the memory and their clients would wait without end.
///
/// Any thread, except `noteBusy` and `noteResting`, which the writer's thread calls.
final class WriteAdmission: Sendable {
    let byteLimit: Int
    private let timeLimit: Duration
    private let waiting = Atomic<Int>(0)
    /// When the writer began its present step, in nanoseconds on the monotonic clock; 0 while it waits for work.
    private let busySince = Atomic<UInt64>(0)
    /// Whether the writer's present step has taken longer than `timeLimit`.
    private let isStalled = Atomic<Bool>(false)

    init(byteLimit: Int, timeLimit: Duration) {
        self.byteLimit = byteLimit
        self.timeLimit = timeLimit
    }

    /// Bytes of rows that wait or are being written.
    var waitingBytes: Int { waiting.load(ordering: .relaxed) }

    /// Why writes are refused while the writer's present step takes too long, as of the last check.
    var stall: StoreOverload? {
        isStalled.load(ordering: .relaxed) ? .stalled(limit: timeLimit) : nil
    }

    /// Counts the bytes of a row that has to wait.
    ///
    /// - Returns: Why the row is refused, in which case it is not counted; nil if it is admitted.
    func admit(_ bytes: Int) -> StoreOverload? {
        if let stall { return stall }
        guard waiting.add(bytes, ordering: .relaxed).newValue <= byteLimit else {
            release(bytes)
            return .queue(bytes: byteLimit)
        }
        return nil
    }

    /// Uncounts bytes that no longer wait.
    func release(_ bytes: Int) {
        if bytes > 0 { waiting.subtract(bytes, ordering: .relaxed) }
    }

    // MARK: - Time

    /// Notes that the writer begins a step.
    func noteBusy() {
        note(MonotonicTime.now.nanoseconds)
    }

    /// Notes that the writer waits for work, or does something that may take long on a sound disk as well.
    func noteResting() {
        note(0)
    }

    private func note(_ moment: UInt64) {
        busySince.store(moment, ordering: .sequentiallyConsistent)
        if isStalled.load(ordering: .sequentiallyConsistent) { isStalled.store(false, ordering: .relaxed) }
    }

    /// Checks whether the writer's present step takes too long.
    ///
    /// - Parameter now: In nanoseconds on the monotonic clock.
    /// - Returns: `stall`.
    func lookForStall(at now: UInt64 = MonotonicTime.now.nanoseconds) -> StoreOverload? {
        let since = busySince.load(ordering: .sequentiallyConsistent)
        guard since != 0, now > since, Duration.nanoseconds(now - since) > timeLimit else { return nil }
        isStalled.store(true, ordering: .sequentiallyConsistent)
        // If the step ended just before the flag was set, the writer did not see the flag and has not reset it.
        if busySince.load(ordering: .sequentiallyConsistent) != since { isStalled.store(false, ordering: .relaxed) }
        return stall
    }
}

/// The writer's short wait after a group, for the next requests of the clients that the group has just answered.
///
/// A client with much to write sends its next request when it has its answer. Without the wait, those that have waited during
/// a commit would make the next group, and those that the commit has answered the one after it: two groups of half the size
/// that take turns at the disk, and each request would take two syncs. The wait is short beside a sync, so a request that comes
/// by chance hardly notices it.
struct GroupPause {
    /// Fewer changes than that are no load for which a larger group is worth a wait.
    private static let smallestGroup = 4
    /// The wait is this part of the time that the commit took.
    private static let divisor = 8
    private static let longest = Duration.milliseconds(5)
    /// A shorter wait would take longer than wanted, as the system wakes a thread some 50 microseconds late (timer slack,
    /// prctl(2)).
    private static let shortestSleep = Duration.microseconds(60)

    /// At most `longest`.
    let duration: Duration

    /// - Parameters:
    ///   - count: The changes of the group.
    ///   - time: What its commit took.
    /// - Returns: Nil if there is nothing to wait for.
    init?(afterGroupOf count: Int, took time: Duration) {
        guard count >= Self.smallestGroup else { return nil }
        duration = min(time / Self.divisor, Self.longest)
    }

    func wait() {
        if duration >= Self.shortestSleep {
            usleep(UInt32(duration / .microseconds(1)))
        } else {
            // Lets the loops send the answers first where they have no processor of their own.
            sched_yield()
        }
    }
}
