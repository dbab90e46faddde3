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

    /// The current time, which is read without entering the kernel (vdso(7)).
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

/// A day of the Gregorian calendar, which is used for days before 1582 too.
///
/// Years are counted in eras of 400 that begin on 1 March, so that the leap day is the last of its year, and the days before a
/// month are always the same: 31, 30, 31, 30, 31 from March, again from August, and again from January.
package struct CalendarDay: Hashable, Sendable {
    package let year: Int64
    /// From 1 to 12.
    package let month: Int64
    /// From 1 to 31.
    package let day: Int64

    /// From 1 March of the year -400 to 1 January 1970.
    private static let daysBefore1970: Int64 = 865_565

    /// Nil if the month has no such day.
    ///
    /// - Parameter year: Not negative.
    package init?(year: Int64, month: Int64, day: Int64) {
        guard (1...12).contains(month), day >= 1, day <= Self.daysInMonth(month, of: year) else { return nil }
        (self.year, self.month, self.day) = (year, month, day)
    }

    /// - Parameter days: Days since 1970-01-01, not before the year -400.
    package init(daysSince1970 days: Int64) {
        let (era, dayOfEra) = (days + Self.daysBefore1970).quotientAndRemainder(dividingBy: 146_097)
        let yearOfEra = (dayOfEra - dayOfEra / 1_460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let monthFromMarch = (5 * dayOfYear + 2) / 153
        let isAfterNewYear = monthFromMarch >= 10
        year = (era - 1) * 400 + yearOfEra + (isAfterNewYear ? 1 : 0)
        month = isAfterNewYear ? monthFromMarch - 9 : monthFromMarch + 3
        day = dayOfYear - (153 * monthFromMarch + 2) / 5 + 1
    }

    package var daysSince1970: Int64 {
        let (shiftedYear, shiftedMonth) = month > 2 ? (year + 400, month - 3) : (year + 399, month + 9)
        let leapDays = shiftedYear / 4 - shiftedYear / 100 + shiftedYear / 400
        return shiftedYear * 365 + leapDays + (153 * shiftedMonth + 2) / 5 + day - 1 - Self.daysBefore1970
    }

    private static func daysInMonth(_ month: Int64, of year: Int64) -> Int64 {
        switch month {
        case 2: year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) ? 29 : 28
        case 4, 6, 9, 11: 30
        default: 31
        }
    }
}
