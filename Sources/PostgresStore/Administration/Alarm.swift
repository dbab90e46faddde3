#if PostgreSQL
internal import Synchronization
internal import System

/// Wakes a thread that waits; ringing it often wakes the thread once.
///
/// Any thread rings, one waits.
final class Alarm: Sendable {
    private let isRung = Atomic<Bool>(false)
    private let semaphore = Semaphore()

    /// Costs an atomic operation.
    func ring() {
        if !isRung.exchange(true, ordering: .acquiringAndReleasing) { semaphore.signal() }
    }

    /// Waits until it rings, or a time has passed.
    func wait(atMost time: Duration) {
        semaphore.wait(atMost: time)
        isRung.store(false, ordering: .releasing)
    }
}
#endif
