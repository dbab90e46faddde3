import System

/// Finds when a token expires according to its token info, where the Facebook SDK writes that.
///
/// The token info is a JSON object with the member `com.facebook.sdk:TokenInformationExpirationDateKey`, a date as in
/// `ExpirationDate`. The sample client sends it in a form without encoding it, which cuts it at the first `&`. So it
/// may not be valid JSON, and is searched as text. No JSON encoder escapes anything in the member's name.
package enum TokenExpiration {
    /// The date in seconds since 1970; nil if there is no valid one, or a refresh token, with which the login outlives it.
    ///
    /// If the member occurs more than once, the latest date counts, so that no token is deleted too early. The time is
    /// proportional to the number of bytes, whatever they are: 30 ns for a usual token info of 350 bytes without the
    /// member.
    package static func expiration(of tokenInfo: Span<UInt8>) -> Int64? {
        var latest: Int64?
        var position = 0
        while let end = expirationDate.end(in: tokenInfo, from: position) {
            position = end
            if let date = date(tokenInfo, at: end) { latest = max(latest ?? date, date) }
        }
        return latest == nil || refreshToken.end(in: tokenInfo, from: 0) != nil ? nil : latest
    }

    private static let expirationDate = Member("com.facebook.sdk:TokenInformationExpirationDateKey")
    private static let refreshToken = Member("TokenCacheClient:RefreshToken")

    /// A member's name, which is searched for with its quotation marks.
    private struct Member {
        private let name: [UInt8]
        /// How far the search advances, by the byte that was compared with the name's last one.
        private let shifts: [Int]

        init(_ text: String) {
            name = Array("\"\(text)\"".utf8)
            var shifts = [Int](repeating: name.count, count: 256)
            for (index, byte) in name.dropLast().enumerated() { shifts[Int(byte)] = name.count - 1 - index }
            self.shifts = shifts
        }

        /// The position after the next occurrence of the name; nil if there is none (Horspool's algorithm).
        func end(in text: Span<UInt8>, from start: Int) -> Int? {
            var end = start + name.count - 1
            while end < text.count {
                let byte = text[end]
                if byte == name[name.count - 1], matches(text, from: end - name.count + 1) { return end + 1 }
                end += shifts[Int(byte)]
            }
            return nil
        }

        private func matches(_ text: Span<UInt8>, from start: Int) -> Bool {
            for index in name.indices where text[start + index] != name[index] { return false }
            return true
        }
    }

    /// Bytes of the longest text that may be a date.
    private static let longestDate = 40

    /// The date in a string after a colon; nil if there is none.
    private static func date(_ text: Span<UInt8>, at start: Int) -> Int64? {
        var position = start
        for byte in [UInt8(ascii: ":"), UInt8(ascii: "\"")] {
            while position < text.count, [0x20, 0x09, 0x0a, 0x0d].contains(text[position]) { position += 1 }
            guard position < text.count, text[position] == byte else { return nil }
            position += 1
        }
        for end in position..<min(text.count, position + longestDate + 1) where text[end] == UInt8(ascii: "\"") {
            return ExpirationDate.seconds(text.extracting(position..<end))
        }
        return nil
    }
}

/// A date as the Facebook SDK writes it: `yyyy-MM-dd'T'HH:mm:ss.SSSZZZ`, for example `2013-08-14T19:24:05.123+0000`.
///
/// - The fraction has one to nine digits, or is missing together with its point.
/// - The zone is `Z`, `+hhmm`, `+hh:mm`, or either with seconds, which the formatter writes for times before time zones
///   existed.
/// - A space counts as the zone's plus sign, because form decoding turns a plus sign into a space.
/// - Every date is Gregorian, also before 1582, and every minute has 60 seconds.
///
/// A date before 2004, when Facebook did not exist, comes from a device with another calendar, which writes that
/// calendar's years, such as 1448, 1405, 0009 or, in the second year of a Japanese era, 0002. Its moment cannot be known, so it
/// is no expiration; nor is the SDK's distant past, which stands for no date. `TokenCacheClient` has the same rule, and both are
/// tested by the same table.
package enum ExpirationDate {
    /// Seconds since 1970 without the fraction; nil if the text is not such a date.
    package static func seconds(_ text: Span<UInt8>) -> Int64? {
        guard text.count > 19,
            let year = number(text, at: 0, digits: 4), text[4] == UInt8(ascii: "-"),
            let month = number(text, at: 5, digits: 2), text[7] == UInt8(ascii: "-"),
            let day = number(text, at: 8, digits: 2), text[10] == UInt8(ascii: "T"),
            let time = timeOfDay(text, at: 11),
            let days = CalendarDay.daysSince1970(year: year, month: month, day: day),
            let offset = zoneOffset(text, at: endOfFraction(text, at: 19))
        else { return nil }
        let seconds = days * 86_400 + time - offset
        return seconds >= startOf2004 ? seconds : nil
    }

    private static let startOf2004: Int64 = 1_072_915_200

    /// Seconds since midnight of `hh:mm:ss`.
    private static func timeOfDay(_ text: Span<UInt8>, at start: Int) -> Int64? {
        guard let hour = number(text, at: start, digits: 2), hour < 24, text[start + 2] == UInt8(ascii: ":"),
            let minute = number(text, at: start + 3, digits: 2), minute < 60, text[start + 5] == UInt8(ascii: ":"),
            let second = number(text, at: start + 6, digits: 2), second < 60
        else { return nil }
        return hour * 3_600 + minute * 60 + second
    }

    /// Where the zone begins; if the fraction is invalid, the position of its point, where no zone can begin.
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
        // Each part has two digits. There are colons between all parts, or none.
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
