/// The parameters of a part's Content-Disposition (RFC 7578, section 4.2) as PHP reads them: with a type before them or
/// without one, and of equal ones the last.
struct ContentDisposition {
    /// Nil if it has none.
    private(set) var name: [UInt8]?
    /// Nil if the part is not a file.
    private(set) var fileName: [UInt8]?

    init(_ value: [UInt8]) {
        let bytes = value.span
        var start = 0
        while start < bytes.count {
            let end = Self.wordEnd(in: start..<bytes.count, before: UInt8(ascii: ";"), of: bytes)
            readParameter(start..<end, of: bytes)
            start = end + 1
        }
    }

    private mutating func readParameter(_ range: Range<Int>, of bytes: Span<UInt8>) {
        let start = Self.skipSpace(in: range, of: bytes)
        let keyEnd = Self.wordEnd(in: start..<range.upperBound, before: UInt8(ascii: "="), of: bytes)
        var valueStart = keyEnd
        while valueStart < range.upperBound && bytes[valueStart] == UInt8(ascii: "=") { valueStart += 1 }
        guard valueStart > keyEnd else { return }
        // White space after the key belongs to it and makes it another key.
        let key = ByteRange(start, keyEnd)
        let value = valueStart..<range.upperBound
        if bytes.equalsIgnoringCase(key, Names.name) { name = Self.unquoted(value, of: bytes) }
        if bytes.equalsIgnoringCase(key, Names.fileName) { fileName = Self.unquoted(value, of: bytes) }
    }

    /// The position of a separator outside double and single quotes, otherwise the range's end.
    ///
    /// A backslash right before the closing quote keeps it from closing, even if another backslash precedes it.
    private static func wordEnd(in range: Range<Int>, before separator: UInt8, of bytes: Span<UInt8>) -> Int {
        var quote: UInt8?
        var index = range.lowerBound
        while index < range.upperBound {
            let byte = bytes[index]
            if byte == quote {
                quote = nil
            } else if quote != nil {
                let isEscape = byte == UInt8(ascii: "\\") && index + 1 < range.upperBound
                if isEscape && bytes[index + 1] == quote { index += 1 }
            } else if byte == separator {
                return index
            } else if isQuote(byte) {
                quote = byte
            }
            index += 1
        }
        return range.upperBound
    }

    /// A value without its quotes and their escapes; a bare one ends at white space.
    private static func unquoted(_ range: Range<Int>, of bytes: Span<UInt8>) -> [UInt8] {
        var text: [UInt8] = []
        var index = skipSpace(in: range, of: bytes)
        guard index < range.upperBound else { return text }
        let quote = isQuote(bytes[index]) ? bytes[index] : nil
        if quote != nil { index += 1 }
        while index < range.upperBound {
            let isEnd = quote == nil ? bytes[index].isSpace : bytes[index] == quote
            if isEnd { break }
            let isEscape = bytes[index] == UInt8(ascii: "\\") && index + 1 < range.upperBound
            if isEscape && (bytes[index + 1] == quote || bytes[index + 1] == UInt8(ascii: "\\")) { index += 1 }
            text.append(bytes[index])
            index += 1
        }
        return text
    }

    private static func skipSpace(in range: Range<Int>, of bytes: Span<UInt8>) -> Int {
        var index = range.lowerBound
        while index < range.upperBound && bytes[index].isSpace { index += 1 }
        return index
    }

    private static func isQuote(_ byte: UInt8) -> Bool {
        byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "'")
    }

    private enum Names {
        static let name: StaticString = "name"
        static let fileName: StaticString = "filename"
    }
}

extension UInt8 {
    /// What C's `isspace` takes for white space.
    var isSpace: Bool { self == .space || (0x09...0x0d).contains(self) }
}
