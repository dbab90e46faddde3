/// A position in JSON text (RFC 8259), which moves on as the text is read.
///
/// Every call is given the same bytes.
package struct JSONCursor: Sendable {
    /// An index into the bytes that every call is given.
    package var position: Int
    private let end: Int

    /// - Parameters:
    ///   - position: Where to begin.
    ///   - end: Where the text ends.
    package init(position: Int, end: Int) {
        self.position = position
        self.end = end
    }

    /// The byte at the position; nil at the end.
    package func peek(_ bytes: Span<UInt8>) -> UInt8? {
        position < end ? bytes[position] : nil
    }

    /// Skips a byte; returns false if another one is there.
    package mutating func accept(_ byte: UInt8, _ bytes: Span<UInt8>) -> Bool {
        guard peek(bytes) == byte else { return false }
        position += 1
        return true
    }

    /// Skips white space (RFC 8259, section 2).
    package mutating func skipSpace(_ bytes: Span<UInt8>) {
        while let byte = peek(bytes), byte == 0x20 || byte == 0x09 || byte == 0x0a || byte == 0x0d { position += 1 }
    }
}

/// Reading by recursive descent; anything that is not JSON is refused.
extension JSONCursor {
    package struct Malformed: Error {
        package init() {}
    }

    /// The deepest nesting that is accepted, as every level takes a stack frame.
    private static let depthLimit = 64

    /// Whether all of the text was read.
    package var isAtEnd: Bool { position == end }

    package mutating func expect(_ byte: UInt8, _ bytes: Span<UInt8>) throws(Malformed) {
        guard accept(byte, bytes) else { throw Malformed() }
    }

    /// Reads the members after an opening brace, up to and including the closing one; `read` gets each name and reads its value.
    package mutating func forEachMember(
        _ bytes: Span<UInt8>, _ read: ([UInt8], inout JSONCursor) throws(Malformed) -> Void
    ) throws(Malformed) {
        skipSpace(bytes)
        if accept(UInt8(ascii: "}"), bytes) { return }
        while true {
            skipSpace(bytes)
            let name = try string(bytes)
            skipSpace(bytes)
            try expect(UInt8(ascii: ":"), bytes)
            skipSpace(bytes)
            try read(name, &self)
            skipSpace(bytes)
            if accept(UInt8(ascii: "}"), bytes) { return }
            try expect(UInt8(ascii: ","), bytes)
        }
    }

    /// Reads the elements after an opening bracket, up to and including the closing one; `read` reads each of them.
    package mutating func forEachElement(
        _ bytes: Span<UInt8>, _ read: (inout JSONCursor) throws(Malformed) -> Void
    ) throws(Malformed) {
        skipSpace(bytes)
        if accept(UInt8(ascii: "]"), bytes) { return }
        while true {
            skipSpace(bytes)
            try read(&self)
            skipSpace(bytes)
            if accept(UInt8(ascii: "]"), bytes) { return }
            try expect(UInt8(ascii: ","), bytes)
        }
    }

    package mutating func skipValue(_ bytes: Span<UInt8>, depth: Int) throws(Malformed) {
        guard depth < Self.depthLimit else { throw Malformed() }
        switch peek(bytes) {
        case UInt8(ascii: "{"):
            position += 1
            try forEachMember(bytes) { (_, cursor) throws(Malformed) in
                try cursor.skipValue(bytes, depth: depth + 1)
            }
        case UInt8(ascii: "["):
            position += 1
            try forEachElement(bytes) { (cursor) throws(Malformed) in try cursor.skipValue(bytes, depth: depth + 1) }
        case UInt8(ascii: "\""): _ = try string(bytes)
        case UInt8(ascii: "t"): try expect("true", bytes)
        case UInt8(ascii: "f"): try expect("false", bytes)
        case UInt8(ascii: "n"): try expect("null", bytes)
        default: try skipNumber(bytes)
        }
    }

    private mutating func expect(_ word: String, _ bytes: Span<UInt8>) throws(Malformed) {
        for byte in word.utf8 { try expect(byte, bytes) }
    }

    private mutating func skipNumber(_ bytes: Span<UInt8>) throws(Malformed) {
        _ = accept(UInt8(ascii: "-"), bytes)
        if !accept(UInt8(ascii: "0"), bytes) { try skipDigits(bytes) }
        if accept(UInt8(ascii: "."), bytes) { try skipDigits(bytes) }
        if accept(UInt8(ascii: "e"), bytes) || accept(UInt8(ascii: "E"), bytes) {
            if !accept(UInt8(ascii: "+"), bytes) { _ = accept(UInt8(ascii: "-"), bytes) }
            try skipDigits(bytes)
        }
    }

    private mutating func skipDigits(_ bytes: Span<UInt8>) throws(Malformed) {
        let start = position
        while let byte = peek(bytes), byte >= UInt8(ascii: "0"), byte <= UInt8(ascii: "9") { position += 1 }
        guard position > start else { throw Malformed() }
    }

    /// Reads a string; returns its bytes, unescaped.
    package mutating func string(_ bytes: Span<UInt8>) throws(Malformed) -> [UInt8] {
        try expect(UInt8(ascii: "\""), bytes)
        var text: [UInt8] = []
        while let byte = peek(bytes), byte >= 0x20 {
            position += 1
            switch byte {
            case UInt8(ascii: "\""): return text
            case UInt8(ascii: "\\"): try appendEscape(bytes, to: &text)
            default: text.append(byte)
            }
        }
        throw Malformed()
    }

    /// Reads an escape after its backslash (RFC 8259, section 7), and appends the character that it stands for.
    private mutating func appendEscape(_ bytes: Span<UInt8>, to text: inout [UInt8]) throws(Malformed) {
        guard let letter = peek(bytes) else { throw Malformed() }
        position += 1
        switch letter {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): text.append(letter)
        case UInt8(ascii: "b"): text.append(0x08)
        case UInt8(ascii: "f"): text.append(0x0c)
        case UInt8(ascii: "n"): text.append(0x0a)
        case UInt8(ascii: "r"): text.append(0x0d)
        case UInt8(ascii: "t"): text.append(0x09)
        case UInt8(ascii: "u"): text += String(try scalar(beginningWith: try codeUnit(bytes), bytes)).utf8
        default: throw Malformed()
        }
    }

    /// Reads the four digits after `\u`: a UTF-16 code unit, which may be half of a surrogate pair.
    private mutating func codeUnit(_ bytes: Span<UInt8>) throws(Malformed) -> UInt16 {
        var value: UInt16 = 0
        for _ in 0..<4 {
            guard let byte = peek(bytes), let digit = Character(UnicodeScalar(byte)).hexDigitValue else {
                throw Malformed()
            }
            value = value << 4 | UInt16(digit)
            position += 1
        }
        return value
    }

    /// The character of an escaped code unit; reads the second half of a surrogate pair, without which the first is malformed.
    private mutating func scalar(
        beginningWith first: UInt16, _ bytes: Span<UInt8>
    ) throws(Malformed) -> Unicode.Scalar {
        if let scalar = Unicode.Scalar(first) { return scalar }
        guard first < 0xdc00 else { throw Malformed() }
        try expect("\\u", bytes)
        let second = try codeUnit(bytes)
        guard (0xdc00...0xdfff).contains(second),
            let scalar = Unicode.Scalar(0x10000 + UInt32(first - 0xd800) << 10 + UInt32(second - 0xdc00))
        else { throw Malformed() }
        return scalar
    }
}
