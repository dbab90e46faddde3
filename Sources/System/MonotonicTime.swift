internal import CLinux
internal import Glibc

/// A moment on the machine's monotonic clock, which is never set back.
///
/// Smaller and cheaper than `ContinuousClock.Instant`: one is stored for every connection and compared in every turn. What
/// every turn does with it is inlined, and only public types are inlined whole in other modules: as calls, comparing and
/// adding took 2 % of a GET.
@frozen public struct MonotonicTime: Hashable, Comparable, Sendable {
    /// Nanoseconds since some moment before the process started.
    public let nanoseconds: UInt64

    /// - Parameter nanoseconds: Since some moment before the process started.
    @inlinable
    public init(nanoseconds: UInt64) {
        self.nanoseconds = nanoseconds
    }

    /// Later than every moment that the clock will show.
    @inlinable
    public static var never: MonotonicTime { MonotonicTime(nanoseconds: .max) }

    /// The present moment; a system call that the kernel answers without being entered.
    public static var now: MonotonicTime {
        var time = timespec()
        _ = unsafe clock_gettime(CLOCK_MONOTONIC, &time)
        return MonotonicTime(nanoseconds: UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec))
    }

    /// `never` where the sum would be too large.
    @inlinable
    public static func + (time: MonotonicTime, duration: Nanoseconds) -> MonotonicTime {
        let (sum, overflow) = time.nanoseconds.addingReportingOverflow(duration.count)
        return overflow ? .never : MonotonicTime(nanoseconds: sum)
    }

    /// The time from `earlier` to `later`, zero if they come in the other order.
    @inlinable
    public static func - (later: MonotonicTime, earlier: MonotonicTime) -> Nanoseconds {
        Nanoseconds(count: later.nanoseconds > earlier.nanoseconds ? later.nanoseconds - earlier.nanoseconds : 0)
    }

    /// Whether a moment comes before another one.
    @inlinable
    public static func < (left: MonotonicTime, right: MonotonicTime) -> Bool {
        left.nanoseconds < right.nanoseconds
    }
}

/// A length of time that is never negative.
///
/// Public for the reason that `MonotonicTime` is.
@frozen public struct Nanoseconds: Hashable, Sendable {
    /// How many nanoseconds.
    public let count: UInt64

    /// - Parameter count: How many nanoseconds.
    @inlinable
    public init(count: UInt64) {
        self.count = count
    }

    /// Durations below zero become zero.
    public init(_ duration: Duration) {
        let (seconds, attoseconds) = duration.components
        count = seconds < 0 ? 0 : UInt64(seconds) * 1_000_000_000 + UInt64(max(0, attoseconds)) / 1_000_000_000
    }
}
