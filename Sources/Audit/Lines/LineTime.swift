internal import Cryptography
internal import System

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
        let day = CalendarDay(daysSince1970: days)
        text.removeAll(keepingCapacity: true)
        append(day.year / 100)
        append(day.year % 100)
        for (mark, value) in [
            ("-", day.month), ("-", day.day), ("T", clock / 3_600), (":", clock / 60 % 60), (":", clock % 60),
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
}
