import CLinux
import Glibc

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

    /// `never` where the sum would be too large.
    package static func + (time: MonotonicTime, duration: Duration) -> MonotonicTime { time + Nanoseconds(duration) }

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
@frozen public struct Nanoseconds: Hashable, Comparable, Sendable {
    /// How many nanoseconds.
    public let count: UInt64

    /// - Parameter count: How many nanoseconds.
    @inlinable
    public init(count: UInt64) {
        self.count = count
    }

    /// Durations below zero become zero, and those of more than 584 years as long as can be.
    public init(_ duration: Duration) {
        let (seconds, attoseconds) = duration.components
        let (whole, isTooLong) = UInt64(max(0, seconds)).multipliedReportingOverflow(by: 1_000_000_000)
        let (sum, overflow) = whole.addingReportingOverflow(UInt64(max(0, attoseconds)) / 1_000_000_000)
        count = isTooLong || overflow ? .max : sum
    }

    /// Whether a length of time is shorter than another one.
    @inlinable
    public static func < (left: Nanoseconds, right: Nanoseconds) -> Bool { left.count < right.count }
}

extension timespec {
    /// What a clock shows (clock_gettime(2)).
    static func now(_ clock: clockid_t) -> timespec {
        var time = timespec()
        _ = unsafe clock_gettime(clock, &time)
        return time
    }
}

/// Times in UTC, by the C library.
package enum UTCTime {
    /// The current time, in microseconds since 1970.
    @Sendable package static func microseconds() -> Int64 {
        let time = timespec.now(CLOCK_REALTIME)
        return Int64(time.tv_sec) * 1_000_000 + Int64(time.tv_nsec) / 1_000
    }

    /// A time as RFC 3339 defines it: `2026-11-21T02:03:04Z`.
    ///
    /// - Parameters:
    ///   - unixTime: Seconds since 1970.
    ///   - fraction: Appended to the seconds, such as `.567`.
    package static func timestamp(_ unixTime: Int64, fraction: String = "") -> String {
        text(unixTime, "%Y-%m-%dT%H:%M:%S\(fraction)Z")
    }

    /// A time in a format of strftime(3), at most 63 bytes; names of days and months are English, as no program here sets a locale.
    ///
    /// - Returns: The number of seconds for a time whose year is too large for the C library.
    package static func text(_ unixTime: Int64, _ format: String) -> String {
        var (seconds, parts) = unsafe (time_t(unixTime), tm())
        guard unsafe gmtime_r(&seconds, &parts) != nil else { return "\(unixTime)" }
        var text = [CChar](repeating: 0, count: 64)
        let count = unsafe strftime(&text, text.count, format, &parts)
        return String(decoding: text[..<count].map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}

/// A day of the Gregorian calendar, which is used for days before 1582 too.
package enum CalendarDay {
    /// The days from 1970-01-01 to a date; nil if the month has no such day.
    ///
    /// Years begin on 1 March here, so that the leap day is the last of its year, and the days before a month are always the same:
    /// 31, 30, 31, 30, 31 from March, again from August, and again from January.
    ///
    /// - Parameters:
    ///   - year: Not negative.
    ///   - month: From 1 to 12.
    ///   - day: From 1 to 31.
    package static func daysSince1970(year: Int64, month: Int64, day: Int64) -> Int64? {
        guard (1...12).contains(month), day >= 1, day <= daysInMonth(month, of: year) else { return nil }
        let (shiftedYear, shiftedMonth) = month > 2 ? (year + 400, month - 3) : (year + 399, month + 9)
        let leapDays = shiftedYear / 4 - shiftedYear / 100 + shiftedYear / 400
        return shiftedYear * 365 + leapDays + (153 * shiftedMonth + 2) / 5 + day - 1 - daysBefore1970
    }

    /// From 1 March of the year -400 to 1 January 1970.
    private static let daysBefore1970: Int64 = 865_565

    private static func daysInMonth(_ month: Int64, of year: Int64) -> Int64 {
        switch month {
        case 2: year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) ? 29 : 28
        case 4, 6, 9, 11: 30
        default: 31
        }
    }
}
