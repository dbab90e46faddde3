internal import System

/// A date as the Facebook SDK writes it: `yyyy-MM-dd'T'HH:mm:ss.SSSZZZ`, for example `2013-08-14T19:24:05.123+0000`.
///
/// - The fraction has one to nine digits, or is missing together with its point.
/// - The zone is `Z`, `+hhmm`, `+hh:mm`, or either with seconds: the formatter writes those for times before there were
///   time zones, the SDK's distant past among them (`0001-12-31T16:07:02.000-075258` in Los Angeles).
/// - A space stands for the zone's plus sign, as form decoding turns one into the other.
/// - Every date is Gregorian, also before 1582, and every minute has 60 seconds.
///
/// A date before 2004, when there was no Facebook, is that of another calendar: a device writes the years of its own, such as
/// 1448, 1405 or 0009. When it is cannot be known, so it is no date. Only the SDK's distant past is one.
package enum ExpirationDate {
    /// Seconds since 1970 without the fraction; nil if the text is not such a date.
    package static func seconds(_ text: Span<UInt8>) -> Int64? {
        guard text.count > 19,
            let year = number(text, at: 0, digits: 4), text[4] == UInt8(ascii: "-"),
            let month = number(text, at: 5, digits: 2), text[7] == UInt8(ascii: "-"),
            let day = number(text, at: 8, digits: 2), text[10] == UInt8(ascii: "T"),
            let time = timeOfDay(text, at: 11),
            let days = CalendarDay(year: year, month: month, day: day)?.daysSince1970,
            let offset = zoneOffset(text, at: endOfFraction(text, at: 19))
        else { return nil }
        let seconds = days * 86_400 + time - offset
        return seconds >= startOf2004 || seconds < startOfYear3 ? seconds : nil
    }

    private static let startOf2004: Int64 = 1_072_915_200
    /// The SDK's distant past is in the years 0 to 2, depending on the device's zone and calendar.
    private static let startOfYear3: Int64 = -62_072_524_800

    /// Seconds since midnight of `hh:mm:ss`.
    private static func timeOfDay(_ text: Span<UInt8>, at start: Int) -> Int64? {
        guard let hour = number(text, at: start, digits: 2), hour < 24, text[start + 2] == UInt8(ascii: ":"),
            let minute = number(text, at: start + 3, digits: 2), minute < 60, text[start + 5] == UInt8(ascii: ":"),
            let second = number(text, at: start + 6, digits: 2), second < 60
        else { return nil }
        return hour * 3_600 + minute * 60 + second
    }

    /// Where the zone begins; the position of the point, which is no zone, if the fraction is invalid.
    private static func endOfFraction(_ text: Span<UInt8>, at start: Int) -> Int {
        guard text[start] == UInt8(ascii: ".") else { return start }
        var end = start + 1
        while end < text.count, isDigit(text[end]) { end += 1 }
        return (2...10).contains(end - start) ? end : start
    }

    private static func zoneOffset(_ text: Span<UInt8>, at start: Int) -> Int64? {
        guard start < text.count else { return nil }
        let sign: Int64
        switch text[start] {
        case UInt8(ascii: "Z"): return start + 1 == text.count ? 0 : nil
        case UInt8(ascii: "+"), UInt8(ascii: " "): sign = 1
        case UInt8(ascii: "-"): sign = -1
        default: return nil
        }
        // Two digits each, and the colons between all of them or none.
        let hasColons = start + 3 < text.count && text[start + 3] == UInt8(ascii: ":")
        var (offset, unit, position): (Int64, Int64, Int) = (0, 3_600, start + 1)
        while unit > 0 {
            guard let part = number(text, at: position, digits: 2), part < (unit == 3_600 ? 24 : 60) else { return nil }
            offset += part * unit
            unit /= 60
            position += 2
            if position == text.count { return unit < 60 ? sign * offset : nil }
            if hasColons {
                guard text[position] == UInt8(ascii: ":") else { return nil }
                position += 1
            }
        }
        return nil
    }

    private static func number(_ text: Span<UInt8>, at start: Int, digits: Int) -> Int64? {
        guard start + digits <= text.count else { return nil }
        var value: Int64 = 0
        for index in start..<(start + digits) {
            guard isDigit(text[index]) else { return nil }
            value = value * 10 + Int64(text[index] - UInt8(ascii: "0"))
        }
        return value
    }

    private static func isDigit(_ byte: UInt8) -> Bool {
        byte >= UInt8(ascii: "0") && byte <= UInt8(ascii: "9")
    }
}
