internal import CLinux
internal import Glibc

/// A moment on the machine's monotonic clock, which no one sets back.
///
/// Smaller and cheaper than `ContinuousClock.Instant`: one is stored for every connection and compared in every turn.
package struct MonotonicTime: Hashable, Comparable, Sendable {
    /// Nanoseconds since some moment before the process started.
    package let nanoseconds: UInt64

    package init(nanoseconds: UInt64) {
        self.nanoseconds = nanoseconds
    }

    /// Later than every moment that the clock will show.
    package static let never = MonotonicTime(nanoseconds: .max)

    package static var now: MonotonicTime {
        var time = timespec()
        _ = unsafe clock_gettime(CLOCK_MONOTONIC, &time)
        return MonotonicTime(nanoseconds: UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec))
    }

    /// `never` where the sum would be too large.
    package static func + (time: MonotonicTime, duration: Nanoseconds) -> MonotonicTime {
        let (sum, overflow) = time.nanoseconds.addingReportingOverflow(duration.count)
        return overflow ? .never : MonotonicTime(nanoseconds: sum)
    }

    /// The time from `earlier` to `later`, nothing when they come in the other order.
    package static func - (later: MonotonicTime, earlier: MonotonicTime) -> Nanoseconds {
        Nanoseconds(count: later.nanoseconds > earlier.nanoseconds ? later.nanoseconds - earlier.nanoseconds : 0)
    }

    package static func < (left: MonotonicTime, right: MonotonicTime) -> Bool {
        left.nanoseconds < right.nanoseconds
    }
}
