/// A position in JSON text (RFC 8259), with the smallest steps that readers of JSON have in common.
///
/// It judges nothing: `JSONScanner` refuses what is not JSON, and a reader of text that may be cut off goes on. Every call is
/// given the same bytes. The steps are inlined, as a call for each byte would cost more than the step; only public types are
/// inlined whole in other modules.
@frozen public struct JSONCursor: Sendable {
    /// Counted from the first of the bytes that every call is given.
    public var position: Int
    @usableFromInline let end: Int

    /// - Parameters:
    ///   - position: Where to begin.
    ///   - end: Where the text ends.
    @inlinable
    public init(position: Int, end: Int) {
        self.position = position
        self.end = end
    }

    /// The byte at the position; nil at the end.
    @inlinable
    public func peek(_ bytes: Span<UInt8>) -> UInt8? {
        position < end ? bytes[position] : nil
    }

    /// Goes past a byte; false if another one is there.
    @inlinable
    public mutating func accept(_ byte: UInt8, _ bytes: Span<UInt8>) -> Bool {
        guard peek(bytes) == byte else { return false }
        position += 1
        return true
    }

    /// Goes past white space (RFC 8259, section 2).
    @inlinable
    public mutating func skipSpace(_ bytes: Span<UInt8>) {
        while let byte = peek(bytes), byte == 0x20 || byte == 0x09 || byte == 0x0a || byte == 0x0d { position += 1 }
    }

    /// What follows the backslash of an escape (RFC 8259, section 7).
    @frozen public enum Escape: Sendable {
        /// The character that was escaped, or that the letter stands for.
        case character(UInt8)
        /// A UTF-16 code unit, which may be half of a pair.
        case codeUnit(UInt16)
        /// The letter or a digit is none; what follows it has not been passed.
        case malformed
        /// The text ends in the escape.
        case cut
    }

    /// Goes past what follows a backslash.
    public mutating func readEscape(_ bytes: Span<UInt8>) -> Escape {
        guard let letter = peek(bytes) else { return .cut }
        position += 1
        switch letter {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): return .character(letter)
        case UInt8(ascii: "b"): return .character(0x08)
        case UInt8(ascii: "f"): return .character(0x0c)
        case UInt8(ascii: "n"): return .character(0x0a)
        case UInt8(ascii: "r"): return .character(0x0d)
        case UInt8(ascii: "t"): return .character(0x09)
        case UInt8(ascii: "u"): return readCodeUnit(bytes)
        default: return .malformed
        }
    }

    /// The four digits after `\u`.
    private mutating func readCodeUnit(_ bytes: Span<UInt8>) -> Escape {
        var value: UInt16 = 0
        for _ in 0..<4 {
            guard let byte = peek(bytes) else { return .cut }
            guard let digit = Self.hexValue(byte) else { return .malformed }
            value = value << 4 | digit
            position += 1
        }
        return .codeUnit(value)
    }

    private static func hexValue(_ byte: UInt8) -> UInt16? {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): UInt16(byte - UInt8(ascii: "0"))
        case UInt8(ascii: "a")...UInt8(ascii: "f"): UInt16(byte - UInt8(ascii: "a") + 10)
        case UInt8(ascii: "A")...UInt8(ascii: "F"): UInt16(byte - UInt8(ascii: "A") + 10)
        default: nil
        }
    }
}
