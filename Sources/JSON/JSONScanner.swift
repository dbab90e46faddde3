/// Reads JSON (RFC 8259) out of bytes by recursive descent.
package struct JSONScanner {
    package struct Malformed: Error {
        package init() {}
    }

    /// The deepest nesting that is accepted, as every level takes a stack frame.
    private static let depthLimit = 64

    private var cursor: JSONCursor

    /// Counted from the first of the bytes that every call is given.
    package var position: Int { cursor.position }

    /// Whether all of the text was read.
    package var isAtEnd: Bool { cursor.position == cursor.end }

    /// - Parameters:
    ///   - position: Where to begin.
    ///   - end: Where the text ends.
    package init(position: Int, end: Int) {
        cursor = JSONCursor(position: position, end: end)
    }

    /// The next byte; nil at the end.
    package func peek(_ bytes: Span<UInt8>) -> UInt8? { cursor.peek(bytes) }

    package mutating func skipSpace(_ bytes: Span<UInt8>) { cursor.skipSpace(bytes) }

    package mutating func expect(_ byte: UInt8, _ bytes: Span<UInt8>) throws(Malformed) {
        guard accept(byte, bytes) else { throw Malformed() }
    }

    private mutating func accept(_ byte: UInt8, _ bytes: Span<UInt8>) -> Bool { cursor.accept(byte, bytes) }

    /// Reads the members after an opening brace, up to and including the closing one; `read` gets each name and reads its value.
    package mutating func forEachMember(
        _ bytes: Span<UInt8>, _ read: ([UInt8], inout JSONScanner) throws(Malformed) -> Void
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
        _ bytes: Span<UInt8>, _ read: (inout JSONScanner) throws(Malformed) -> Void
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

    /// The text of an object, from brace to brace.
    package mutating func objectText(_ bytes: Span<UInt8>) throws(Malformed) -> [UInt8] {
        let start = position
        try skipValue(bytes, depth: 1)
        let text = bytes.extracting(start..<position)
        return [UInt8](capacity: text.count) { output in
            for index in text.indices { output.append(text[index]) }
        }
    }

    package mutating func skipValue(_ bytes: Span<UInt8>, depth: Int) throws(Malformed) {
        guard depth < Self.depthLimit else { throw Malformed() }
        switch peek(bytes) {
        case UInt8(ascii: "{"):
            cursor.position += 1
            try forEachMember(bytes) { (_, scanner) throws(Malformed) in
                try scanner.skipValue(bytes, depth: depth + 1)
            }
        case UInt8(ascii: "["): try skipArray(bytes, depth: depth)
        case UInt8(ascii: "\""): _ = try string(bytes)
        case UInt8(ascii: "t"): try expect("true", bytes)
        case UInt8(ascii: "f"): try expect("false", bytes)
        case UInt8(ascii: "n"): try expect("null", bytes)
        default: try skipNumber(bytes)
        }
    }

    private mutating func skipArray(_ bytes: Span<UInt8>, depth: Int) throws(Malformed) {
        cursor.position += 1
        try forEachElement(bytes) { (scanner) throws(Malformed) in try scanner.skipValue(bytes, depth: depth + 1) }
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
        while let byte = peek(bytes), byte >= UInt8(ascii: "0"), byte <= UInt8(ascii: "9") { cursor.position += 1 }
        guard position > start else { throw Malformed() }
    }

    /// A string's bytes, unescaped.
    package mutating func string(_ bytes: Span<UInt8>) throws(Malformed) -> [UInt8] {
        try expect(UInt8(ascii: "\""), bytes)
        var text: [UInt8] = []
        while let byte = peek(bytes), byte >= 0x20 {
            cursor.position += 1
            switch byte {
            case UInt8(ascii: "\""): return text
            case UInt8(ascii: "\\"): try appendEscape(bytes, to: &text)
            default: text.append(byte)
            }
        }
        throw Malformed()
    }

    private mutating func appendEscape(_ bytes: Span<UInt8>, to text: inout [UInt8]) throws(Malformed) {
        switch cursor.readEscape(bytes) {
        case .character(let byte): text.append(byte)
        case .codeUnit(let unit): text.append(contentsOf: String(try scalar(beginningWith: unit, bytes)).utf8)
        case .malformed, .cut: throw Malformed()
        }
    }

    /// The character of an escaped code unit, which may be the first of a pair; a surrogate alone stands for no character.
    private mutating func scalar(
        beginningWith first: UInt16, _ bytes: Span<UInt8>
    ) throws(Malformed) -> Unicode.Scalar {
        if let scalar = Unicode.Scalar(first) { return scalar }
        guard first < 0xdc00 else { throw Malformed() }
        try expect(UInt8(ascii: "\\"), bytes)
        guard peek(bytes) == UInt8(ascii: "u"), case .codeUnit(let second) = cursor.readEscape(bytes),
            (0xdc00...0xdfff).contains(second),
            let scalar = Unicode.Scalar(0x10000 + UInt32(first - 0xd800) << 10 + UInt32(second - 0xdc00))
        else { throw Malformed() }
        return scalar
    }
}
