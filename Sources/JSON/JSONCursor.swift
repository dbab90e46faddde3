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
    package struct Malformed: Error {}

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
        try forEachItem(bytes, until: UInt8(ascii: "}")) { (cursor) throws(Malformed) in
            let name = try cursor.string(bytes)
            try cursor.expectColon(bytes)
            try read(name, &cursor)
        }
    }

    /// Reads the elements after an opening bracket, up to and including the closing one; `read` reads each of them.
    mutating func forEachElement(
        _ bytes: Span<UInt8>, _ read: (inout JSONCursor) throws(Malformed) -> Void
    ) throws(Malformed) {
        try forEachItem(bytes, until: UInt8(ascii: "]"), read)
    }

    private mutating func forEachItem(
        _ bytes: Span<UInt8>, until end: UInt8, _ read: (inout JSONCursor) throws(Malformed) -> Void
    ) throws(Malformed) {
        skipSpace(bytes)
        if accept(end, bytes) { return }
        while true {
            skipSpace(bytes)
            try read(&self)
            skipSpace(bytes)
            if accept(end, bytes) { return }
            try expect(UInt8(ascii: ","), bytes)
        }
    }

    private mutating func expectColon(_ bytes: Span<UInt8>) throws(Malformed) {
        skipSpace(bytes)
        try expect(UInt8(ascii: ":"), bytes)
        skipSpace(bytes)
    }

    package mutating func skipValue(_ bytes: Span<UInt8>, depth: Int) throws(Malformed) {
        guard depth < Self.depthLimit else { throw Malformed() }
        switch peek(bytes) {
        case UInt8(ascii: "{"):
            position += 1
            try forEachItem(bytes, until: UInt8(ascii: "}")) { (cursor) throws(Malformed) in
                try cursor.readString(bytes) { _ in }
                try cursor.expectColon(bytes)
                try cursor.skipValue(bytes, depth: depth + 1)
            }
        case UInt8(ascii: "["):
            position += 1
            try forEachElement(bytes) { (cursor) throws(Malformed) in try cursor.skipValue(bytes, depth: depth + 1) }
        case UInt8(ascii: "\""): try readString(bytes) { _ in }
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
        var text: [UInt8] = []
        try readString(bytes) { text.append($0) }
        return text
    }

    /// Reads a string; `take` gets its bytes, unescaped.
    @inline(__always)
    private mutating func readString(_ bytes: Span<UInt8>, _ take: (UInt8) -> Void) throws(Malformed) {
        try expect(UInt8(ascii: "\""), bytes)
        while let byte = peek(bytes), byte >= 0x20 {
            position += 1
            switch byte {
            case UInt8(ascii: "\""): return
            case UInt8(ascii: "\\"): try escape(bytes).utf8.forEach(take)
            default: take(byte)
            }
        }
        throw Malformed()
    }

    /// Reads an escape after its backslash (RFC 8259, section 7); returns the character that it stands for.
    private mutating func escape(_ bytes: Span<UInt8>) throws(Malformed) -> Unicode.Scalar {
        guard let letter = peek(bytes) else { throw Malformed() }
        position += 1
        switch letter {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): return Unicode.Scalar(letter)
        case UInt8(ascii: "b"): return "\u{8}"
        case UInt8(ascii: "f"): return "\u{c}"
        case UInt8(ascii: "n"): return "\n"
        case UInt8(ascii: "r"): return "\r"
        case UInt8(ascii: "t"): return "\t"
        case UInt8(ascii: "u"): return try scalar(beginningWith: try codeUnit(bytes), bytes)
        default: throw Malformed()
        }
    }

    /// Reads the four digits after `\u`: a UTF-16 code unit, which may be half of a surrogate pair.
    private mutating func codeUnit(_ bytes: Span<UInt8>) throws(Malformed) -> UInt16 {
        var value: UInt16 = 0
        for _ in 0..<4 {
            switch peek(bytes) {
            case let byte? where byte >= UInt8(ascii: "0") && byte <= UInt8(ascii: "9"):
                value = value << 4 | UInt16(byte - UInt8(ascii: "0"))
            // Letters of either case.
            case let byte? where byte | 0x20 >= UInt8(ascii: "a") && byte | 0x20 <= UInt8(ascii: "f"):
                value = value << 4 | UInt16(byte | 0x20 - UInt8(ascii: "a") + 10)
            default: throw Malformed()
            }
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
