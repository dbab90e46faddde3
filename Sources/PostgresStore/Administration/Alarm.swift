#if PostgreSQL
internal import Dispatch
internal import Synchronization

/// Wakes a thread that waits; ringing it often wakes the thread once.
///
/// Any thread rings, one waits.
final class Alarm: Sendable {
    private let isRung = Atomic<Bool>(false)
    private let semaphore = DispatchSemaphore(value: 0)

    /// Costs an atomic operation.
    func ring() {
        if !isRung.exchange(true, ordering: .acquiringAndReleasing) { semaphore.signal() }
    }

    /// Waits until it rings, or a time has passed.
    func wait(atMost time: Duration) {
        let (seconds, attoseconds) = time.components
        let nanoseconds = Int(clamping: seconds) * 1_000_000_000 + Int(attoseconds / 1_000_000_000)
        _ = semaphore.wait(timeout: .now() + .nanoseconds(max(0, nanoseconds)))
        isRung.store(false, ordering: .releasing)
    }
}
#endif
