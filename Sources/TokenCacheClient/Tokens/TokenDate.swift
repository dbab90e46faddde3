internal import Foundation

/// A date in token info: written as `yyyy-MM-dd'T'HH:mm:ss.SSS+0000` in UTC, read in every form that devices have written.
///
/// The guide's sample client formats dates by `yyyy-MM-dd'T'HH:mm:ss.SSSZZZ` without a fixed locale, so what it writes depends
/// on the device (Apple's Technical Q&A QA1480), and it sends them without escaping. Read are therefore, besides the plain
/// form: a space in place of the offset's plus sign (form decoding makes one of the other); offsets `Z`, `±hh:mm` and with
/// seconds; no fraction, or one of up to nine digits; the decimal digits of any script; invisible format characters; a
/// 12-hour clock with its marker, as in `10:30:33.123 PM+0100`; dates of the Buddhist, Persian and Hijri calendars around the
/// present. Dates of other calendars are none.
///
/// As on the server, every date is Gregorian, also before 1582, and every minute has 60 seconds; and one before 2004, when there
/// was no Facebook, is that of another calendar and no date, except the SDK's distant past.
enum TokenDate {
    /// The instant; nil if the text is no date in one of these forms.
    static func parse(_ text: String) -> Date? {
        var reader = TokenDateReader(text)
        return reader.date()
    }

    /// The date in UTC, rounded to milliseconds, and moved into the years 1 to 9999.
    ///
    /// Later than 2442 is as good as never: it becomes the distant future, as those years could be read as Buddhist ones.
    static func text(_ date: Date) -> String {
        let (day, time) = milliseconds(date).quotientAndPositiveRemainder(dividingBy: 86_400_000)
        let (year, month, dayOfMonth) = GregorianDay.date(daysSince1970: day)
        return "\(padded(year, 4))-\(padded(month, 2))-\(padded(dayOfMonth, 2))T"
            + "\(padded(time / 3_600_000, 2)):\(padded(time / 60_000 % 60, 2)):\(padded(time / 1_000 % 60, 2))"
            + ".\(padded(time % 1_000, 3))+0000"
    }

    /// The instant that is written, in milliseconds since 1970.
    static func milliseconds(_ date: Date) -> Int64 {
        let isNever = date.timeIntervalSince1970 >= startOf2443 && date < .distantFuture
        let seconds = min(max((isNever ? .distantFuture : date).timeIntervalSince1970, earliest), latest)
        return Int64((seconds * 1_000).rounded())
    }

    /// 0001-01-01T00:00:00Z; `Date.distantPast` is two days earlier, as Foundation counts in the Julian calendar there.
    static let earliest: TimeInterval = -62_135_596_800
    /// The SDK's distant past is earlier, depending on the device's zone and calendar.
    static let startOfYear3 = Date(timeIntervalSince1970: earliest + 2 * 365 * 86_400)
    static let startOf2004 = Date(timeIntervalSince1970: 1_072_915_200)
    private static let startOf2443: TimeInterval = 14_926_464_000
    /// 9999-12-31T23:59:59Z.
    private static let latest: TimeInterval = 253_402_300_799

    private static func padded(_ number: Int64, _ digits: Int) -> String {
        let text = String(number)
        return String(repeating: "0", count: max(0, digits - text.count)) + text
    }
}

/// Days of the Gregorian calendar as numbers.
enum GregorianDay {
    /// Days since 1970-01-01; nil if the month has no such day.
    static func daysSince1970(year: Int64, month: Int64, day: Int64) -> Int64? {
        guard (1...12).contains(month), day >= 1, day <= daysInMonth(month, of: year) else { return nil }
        // Years that begin in March have the leap day at their end, so that the days before a month are always the same.
        let (shiftedYear, shiftedMonth) = month > 2 ? (year + 400, month - 3) : (year + 399, month + 9)
        let leapDays = shiftedYear / 4 - shiftedYear / 100 + shiftedYear / 400
        // 31, 30, 31, 30, 31 days from March, again from August; the first of March of the year -400 is day -865,565.
        return shiftedYear * 365 + leapDays + (153 * shiftedMonth + 2) / 5 + day - 1 - 865_565
    }

    /// The reverse, for days of the years 1 to 9999.
    static func date(daysSince1970: Int64) -> (year: Int64, month: Int64, day: Int64) {
        let days = daysSince1970 + 865_565
        let (cycle, dayOfCycle) = (days / 146_097, days % 146_097)
        let yearOfCycle = (dayOfCycle - dayOfCycle / 1_460 + dayOfCycle / 36_524 - dayOfCycle / 146_096) / 365
        let dayOfYear = dayOfCycle - (365 * yearOfCycle + yearOfCycle / 4 - yearOfCycle / 100)
        let shiftedMonth = (5 * dayOfYear + 2) / 153
        let month = shiftedMonth < 10 ? shiftedMonth + 3 : shiftedMonth - 9
        let year = cycle * 400 + yearOfCycle - 400 + (month <= 2 ? 1 : 0)
        return (year, month, dayOfYear - (153 * shiftedMonth + 2) / 5 + 1)
    }

    private static func daysInMonth(_ month: Int64, of year: Int64) -> Int64 {
        switch month {
        case 2: year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) ? 29 : 28
        case 4, 6, 9, 11: 30
        default: 31
        }
    }
}

extension Int64 {
    fileprivate func quotientAndPositiveRemainder(dividingBy divisor: Int64) -> (Int64, Int64) {
        let (quotient, remainder) = quotientAndRemainder(dividingBy: divisor)
        return remainder < 0 ? (quotient - 1, remainder + divisor) : (quotient, remainder)
    }
}
