internal import CLinux
internal import Glibc

/// A counting semaphore (sem_overview(7)) whose waits end by the monotonic clock.
///
/// Those of Dispatch's end by the wall clock on Linux: one that is set back by an hour makes a wait an hour longer.
///
/// Any thread. `@unchecked Sendable`: the C library's functions may be called from any thread at the same time. Their argument is
/// valid for as long as this exists.
@safe package final class Semaphore: @unchecked Sendable {
    /// Allocated, as it must not move.
    private let semaphore: UnsafeMutablePointer<sem_t>

    /// - Parameter value: How many waits return at once.
    package init(value: UInt32 = 0) {
        unsafe semaphore = .allocate(capacity: 1)
        unsafe sem_init(semaphore, 0, value)
    }

    deinit {
        // Nobody waits: a wait holds a reference.
        unsafe sem_destroy(semaphore)
        unsafe semaphore.deallocate()
    }

    /// Lets one wait return, one that has begun or the next.
    package func signal() {
        let result = unsafe sem_post(semaphore)
        precondition(result == 0, "a semaphore was signalled more often than it can count")
    }

    /// Waits for a signal; an interrupted wait goes on.
    package func wait() {
        _ = retryingInterrupts { unsafe sem_wait(semaphore) }
    }

    /// Waits for a signal, or until a time has passed.
    ///
    /// - Returns: Whether a signal came.
    @discardableResult
    package func wait(atMost time: Duration) -> Bool {
        let end = (MonotonicTime.now + Nanoseconds(time)).nanoseconds
        var deadline = timespec(tv_sec: Int(end / 1_000_000_000), tv_nsec: Int(end % 1_000_000_000))
        return retryingInterrupts { unsafe sem_clockwait(semaphore, CLOCK_MONOTONIC, &deadline) } == 0
    }
}
