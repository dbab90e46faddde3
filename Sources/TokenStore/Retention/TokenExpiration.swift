internal import Glibc
internal import JSON
internal import System

/// When a token expires according to its token info, into which the Facebook SDK writes that.
///
/// The token info is a JSON object with the member `com.facebook.sdk:TokenInformationExpirationDateKey`, a date as in
/// `ExpirationDate`. The sample client sends it unencoded in a form, which cuts it at the first `&`; so the scan does
/// not require valid JSON. It reads from the beginning, and uses what is complete.
package enum TokenExpiration {
    /// The date in seconds since 1970; nil if there is none, or it is invalid.
    ///
    /// The member must be in the outermost object; if it is there more than once, the last one counts. Takes time in
    /// proportion to the number of bytes, whatever they are: 30 ns for a usual token info of 350 bytes without the
    /// member, 300 ns with it, 5 ms for the worst case of 1 MiB.
    package static func expiration(of tokenInfo: Span<UInt8>) -> Int64? {
        guard containsKey(tokenInfo) || containsEscapedCharacter(tokenInfo) else { return nil }
        var scanner = Scanner(tokenInfo)
        return scanner.expiration()
    }

    private static let key = Array("com.facebook.sdk:TokenInformationExpirationDateKey".utf8)

    /// How far the search moves on if this byte is below the key's end.
    private static let shifts: [Int] = {
        var shifts = [Int](repeating: key.count, count: 256)
        for (index, byte) in key.dropLast().enumerated() { shifts[Int(byte)] = key.count - 1 - index }
        return shifts
    }()

    /// Searches for the key without escapes (Horspool's algorithm).
    ///
    /// The key's last byte occurs in it only once, so after each comparison the search moves on by the whole key: at
    /// most one comparison for each byte of the text.
    private static func containsKey(_ text: Span<UInt8>) -> Bool {
        let (key, shifts) = (key, shifts)
        var end = key.count - 1
        while end < text.count {
            let byte = text[end]
            if byte == key[key.count - 1], matches(key, text, from: end - key.count + 1) { return true }
            end += shifts[Int(byte)]
        }
        return false
    }

    private static func matches(_ key: [UInt8], _ text: Span<UInt8>, from start: Int) -> Bool {
        for index in key.indices where text[start + index] != key[index] { return false }
        return true
    }

    /// Whether there is a `\u`, the only escape with which the key could be written differently.
    private static func containsEscapedCharacter(_ text: Span<UInt8>) -> Bool {
        unsafe text.withUnsafeBufferPointer { buffer in
            guard var rest = buffer.baseAddress else { return false }
            let end = unsafe rest + buffer.count
            // glibc's memchr looks at 32 bytes a step, and the last byte has none behind it.
            while unsafe rest + 1 < end, let found = unsafe memchr(rest, 0x5c, end - rest - 1) {
                let letter = unsafe found.assumingMemoryBound(to: UInt8.self) + 1
                if unsafe letter.pointee == UInt8(ascii: "u") { return true }
                unsafe rest = UnsafePointer(letter)
            }
            return false
        }
    }

    /// Scans the text once, without recursion.
    private struct Scanner: ~Escapable {
        private let text: Span<UInt8>
        private var cursor: JSONCursor

        @_lifetime(copy text)
        init(_ text: Span<UInt8>) {
            self.text = text
            cursor = JSONCursor(position: 0, end: text.count)
        }

        /// The value of the last member with the key, of those that the scan reaches.
        @_lifetime(self: copy self)
        mutating func expiration() -> Int64? {
            var expiration: Int64?
            cursor.skipSpace(text)
            guard cursor.accept(UInt8(ascii: "{"), text) else { return nil }
            repeat {
                cursor.skipSpace(text)
                guard cursor.accept(UInt8(ascii: "\""), text) else { return expiration }
                let isKey = stringEquals(TokenExpiration.key)
                cursor.skipSpace(text)
                guard cursor.accept(UInt8(ascii: ":"), text) else { return expiration }
                cursor.skipSpace(text)
                if !isKey {
                    skipValue()
                } else if cursor.accept(UInt8(ascii: "\""), text) {
                    expiration = dateInString()
                } else {
                    expiration = nil
                    skipValue()
                }
                cursor.skipSpace(text)
            } while cursor.accept(UInt8(ascii: ","), text)
            return expiration
        }

        // MARK: - Values

        /// Moves to the end of a value: the quote of a string, the bracket of an object or array, otherwise the comma.
        @_lifetime(self: copy self)
        private mutating func skipValue() {
            var depth = 0
            while let byte = cursor.peek(text) {
                switch byte {
                case UInt8(ascii: "\""):
                    cursor.position += 1
                    skipString()
                    if depth == 0 { return }
                    continue
                case UInt8(ascii: "{"), UInt8(ascii: "["): depth += 1
                case UInt8(ascii: "}"), UInt8(ascii: "]"):
                    // At depth 0 it is the outermost object's end, after a number or a word.
                    guard depth > 0 else { return }
                    depth -= 1
                    if depth == 0 {
                        cursor.position += 1
                        return
                    }
                case UInt8(ascii: ",") where depth == 0: return
                default: break
                }
                cursor.position += 1
            }
        }

        // MARK: - Strings, after their opening quote

        private enum Character {
            /// As it stands there, or escaped.
            case byte(UInt8)
            /// An escaped character beyond ASCII, or an invalid escape: neither occurs in the key or a date.
            case other
            case closingQuote
            /// The text stops inside the string.
            case cut
        }

        @_lifetime(self: copy self)
        private mutating func nextCharacter() -> Character {
            guard let byte = cursor.peek(text) else { return .cut }
            cursor.position += 1
            if byte == UInt8(ascii: "\"") { return .closingQuote }
            guard byte == UInt8(ascii: "\\") else { return .byte(byte) }
            switch cursor.readEscape(text) {
            // Neither the key nor a date has a control character.
            case .character(let character): return character < 0x20 ? .other : .byte(character)
            case .codeUnit(let unit): return unit < 0x80 ? .byte(UInt8(unit)) : .other
            case .malformed: return .other
            case .cut: return .cut
            }
        }

        @_lifetime(self: copy self)
        private mutating func skipString() {
            while let byte = cursor.peek(text) {
                cursor.position += 1
                if byte == UInt8(ascii: "\"") { return }
                if byte == UInt8(ascii: "\\") { cursor.position += 1 }
            }
        }

        /// Whether the string is the expected one; moves to its end in either case.
        @_lifetime(self: copy self)
        private mutating func stringEquals(_ expected: [UInt8]) -> Bool {
            var count = 0
            while true {
                switch nextCharacter() {
                case .byte(let byte) where count < expected.count && byte == expected[count]: count += 1
                case .closingQuote: return count == expected.count
                case .cut: return false
                case .byte, .other:
                    skipString()
                    return false
                }
            }
        }

        /// The date in the string; moves to its end in either case.
        @_lifetime(self: copy self)
        private mutating func dateInString() -> Int64? {
            var date = InlineArray<40, UInt8>(repeating: 0)
            var count = 0
            while true {
                switch nextCharacter() {
                case .byte(let byte) where count < date.count:
                    date[count] = byte
                    count += 1
                case .closingQuote: return ExpirationDate.seconds(date.span.extracting(0..<count))
                case .cut: return nil
                case .byte, .other:
                    skipString()
                    return nil
                }
            }
        }
    }
}

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
