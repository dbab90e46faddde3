internal import HTTP

/// Reads JSON (RFC 8259) out of bytes by recursive descent.
package struct JSONScanner {
    package struct Malformed: Error {
        package init() {}
    }

    /// Deeper nesting than this is refused, as every level takes a stack frame.
    private static let depthLimit = 64

    /// Counted from the first of the bytes that every call is given.
    package var position: Int
    let end: Int

    package init(position: Int, end: Int) {
        self.position = position
        self.end = end
    }

    func peek(_ bytes: Span<UInt8>) -> UInt8? {
        position < end ? bytes[position] : nil
    }

    mutating func skipSpace(_ bytes: Span<UInt8>) throws(Malformed) {
        while let byte = peek(bytes), byte == 0x20 || byte == 0x09 || byte == 0x0a || byte == 0x0d { position += 1 }
    }

    package mutating func expect(_ byte: UInt8, _ bytes: Span<UInt8>) throws(Malformed) {
        guard peek(bytes) == byte else { throw Malformed() }
        position += 1
    }

    private mutating func accept(_ byte: UInt8, _ bytes: Span<UInt8>) -> Bool {
        guard peek(bytes) == byte else { return false }
        position += 1
        return true
    }

    /// Reads members after the opening brace up to the closing one; `read` takes the value.
    package mutating func forEachMember(
        _ bytes: Span<UInt8>, _ read: ([UInt8], inout JSONScanner) throws(Malformed) -> Void
    ) throws(Malformed) {
        try skipSpace(bytes)
        if accept(UInt8(ascii: "}"), bytes) { return }
        while true {
            try skipSpace(bytes)
            let name = try string(bytes)
            try skipSpace(bytes)
            try expect(UInt8(ascii: ":"), bytes)
            try skipSpace(bytes)
            try read(name, &self)
            try skipSpace(bytes)
            if accept(UInt8(ascii: "}"), bytes) { return }
            try expect(UInt8(ascii: ","), bytes)
        }
    }

    /// The text of an object, from brace to brace.
    mutating func objectText(_ bytes: Span<UInt8>) throws(Malformed) -> [UInt8] {
        let start = position
        try skipValue(bytes, depth: 1)
        return [UInt8](ByteRange(start, position), in: bytes)
    }

    mutating func skipValue(_ bytes: Span<UInt8>, depth: Int) throws(Malformed) {
        guard depth < Self.depthLimit else { throw Malformed() }
        switch peek(bytes) {
        case UInt8(ascii: "{"):
            position += 1
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
        position += 1
        try skipSpace(bytes)
        if accept(UInt8(ascii: "]"), bytes) { return }
        while true {
            try skipSpace(bytes)
            try skipValue(bytes, depth: depth + 1)
            try skipSpace(bytes)
            if accept(UInt8(ascii: "]"), bytes) { return }
            try expect(UInt8(ascii: ","), bytes)
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

    /// A string's bytes with the escapes undone.
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
        case UInt8(ascii: "u"): text.append(contentsOf: String(try escapedScalar(bytes)).utf8)
        default: throw Malformed()
        }
    }

    /// What follows `\u`: four digits, or a pair of surrogates.
    ///
    /// A surrogate alone stands for no character.
    private mutating func escapedScalar(_ bytes: Span<UInt8>) throws(Malformed) -> Unicode.Scalar {
        let first = try fourDigits(bytes)
        if let scalar = Unicode.Scalar(first) { return scalar }
        guard first < 0xdc00 else { throw Malformed() }
        try expect(UInt8(ascii: "\\"), bytes)
        try expect(UInt8(ascii: "u"), bytes)
        let second = try fourDigits(bytes)
        guard (0xdc00...0xdfff).contains(second),
            let scalar = Unicode.Scalar(0x10000 + (first - 0xd800) << 10 + (second - 0xdc00))
        else { throw Malformed() }
        return scalar
    }

    private mutating func fourDigits(_ bytes: Span<UInt8>) throws(Malformed) -> UInt32 {
        var value: UInt32 = 0
        for _ in 0..<4 {
            guard let byte = peek(bytes), let digit = ByteClass.hexValue(byte) else { throw Malformed() }
            value = value << 4 | UInt32(digit)
            position += 1
        }
        return value
    }
}
