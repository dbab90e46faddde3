internal import Glibc
internal import JSON

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
