internal import Cryptography

/// Writes times as RFC 3339 defines them, in UTC and with microseconds: `2026-11-21T02:03:04.567890Z`.
struct LineTime: ~Copyable {
    static let length = 27

    /// The last second that was written, and its text up to the point.
    private var second: Int64 = .min
    private var text: [UInt8] = []

    /// - Parameters:
    ///   - microseconds: Since 1970.
    ///   - line: The time is appended to it.
    mutating func append(_ microseconds: Int64, to line: inout [UInt8]) {
        let (second, rest) = max(0, microseconds).quotientAndRemainder(dividingBy: 1_000_000)
        if second != self.second {
            self.second = second
            format(second)
        }
        line.append(span: text.span)
        var divisor: Int64 = 100_000
        while divisor > 0 {
            line.append(Self.digit(rest / divisor))
            divisor /= 10
        }
        line.append(UInt8(ascii: "Z"))
    }

    private mutating func format(_ second: Int64) {
        let (days, clock) = second.quotientAndRemainder(dividingBy: 86_400)
        let (year, month, day) = Self.date(days)
        text.removeAll(keepingCapacity: true)
        append(year / 100)
        append(year % 100)
        for (mark, value) in [
            ("-", month), ("-", day), ("T", clock / 3_600), (":", clock / 60 % 60), (":", clock % 60),
        ] {
            text.append(contentsOf: mark.utf8)
            append(value)
        }
        text.append(UInt8(ascii: "."))
    }

    private mutating func append(_ twoDigits: Int64) {
        text.append(Self.digit(twoDigits / 10))
        text.append(Self.digit(twoDigits))
    }

    private static func digit(_ value: Int64) -> UInt8 { UInt8(ascii: "0") + UInt8(value % 10) }

    /// The date of a day in the Gregorian calendar, by Howard Hinnant's `civil_from_days`: years begin in March, so that
    /// the leap day is the last of one.
    private static func date(_ daysSince1970: Int64) -> (year: Int64, month: Int64, day: Int64) {
        let days = daysSince1970 + 719_468
        let era = days / 146_097
        let dayOfEra = days % 146_097
        let yearOfEra = (dayOfEra - dayOfEra / 1_460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let month = (5 * dayOfYear + 2) / 153
        let day = dayOfYear - (153 * month + 2) / 5 + 1
        let isAfterNewYear = month >= 10
        return (yearOfEra + era * 400 + (isAfterNewYear ? 1 : 0), isAfterNewYear ? month - 9 : month + 3, day)
    }
}
