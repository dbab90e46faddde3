import JSON

/// Strings as PHP's `json_encode` writes them: slashes escaped, everything beyond ASCII as `\uxxxx`.
package enum JSONText {
    /// Appends the inside of a JSON string.
    ///
    /// - Parameters:
    ///   - text: UTF-8; bytes that are not valid UTF-8 are replaced by U+FFFD.
    ///   - output: The buffer to append to.
    package static func appendEscaped(_ text: [UInt8], to output: inout [UInt8]) {
        appendEscaped(text.span, to: &output)
    }

    /// Appends a part of a text, which must not end within a UTF-8 sequence.
    static func appendEscaped(_ text: Span<UInt8>, to output: inout [UInt8]) {
        var start = 0
        while start < text.count {
            let end = end(ofPartFrom: start, of: text, longest: 2 << 10)
            let part = text.extracting(start..<end)
            // Reserving room for the worst case costs less than measuring a part first.
            output.append(addingCapacity: 6 * part.count + EscapeWriter.slack) { output in
                unsafe output.withUnsafeMutableBufferPointer { room, count in
                    var writer = unsafe EscapeWriter(room[count...])
                    append(part, to: &writer)
                    count += writer.count
                }
            }
            start = end
        }
    }

    /// Where a part of a text ends, which may be escaped or measured by itself.
    static func end(ofPartFrom start: Int, of text: Span<UInt8>, longest: Int) -> Int {
        let end = start + longest
        guard end < text.count else { return text.count }
        // A character has at most three continuation bytes. If there are four in a row, the text is not UTF-8, and it may be
        // cut before the fourth.
        for end in (end - 3...end).reversed() where text[end] & 0xc0 != 0x80 { return end }
        return end
    }

    /// The number of bytes that `appendEscaped` appends for a text.
    package static func escapedLength(of text: Span<UInt8>) -> Int {
        var counter = EscapeCounter()
        append(text, to: &counter)
        return counter.count
    }

    private static func append(_ text: Span<UInt8>, to output: inout some EscapeOutput) {
        // A local copy, as a global array is looked up with each use.
        let escapes = escapes
        var index = 0
        while index < text.count {
            let byte = text[index]
            guard byte < 0x80 else {
                index = appendNonASCII(text, from: index, to: &output)
                continue
            }
            let escape = escapes[Int(byte)]
            if escape.length == 1, index + Block.byteCount <= text.count {
                let block = Block(text, at: index)
                let count = block.plainCount
                output.append(block.bytes, count: count)
                index += count
            } else {
                output.append(escape.bytes, count: escape.length)
                index += 1
            }
        }
    }

    /// Loads several bytes of a text as one integer, in memory order.
    @inline(__always)
    private static func word<Word: FixedWidthInteger & BitwiseCopyable>(of text: Span<UInt8>, at index: Int) -> Word {
        // All bit patterns are valid.
        unsafe text.bytes.unsafeLoadUnaligned(fromByteOffset: index, as: Word.self)
    }

    // MARK: - ASCII

    /// Eight bytes, tested together.
    ///
    /// Each test marks bytes by their highest bit. It sees seven bits of each byte, so that no sum or difference carries into the
    /// next one.
    private struct Block {
        static let byteCount = 8

        private static let highest: UInt64 = 0x8080_8080_8080_8080

        /// The first one is the lowest.
        let bytes: UInt64

        init(_ text: Span<UInt8>, at index: Int) {
            bytes = UInt64(littleEndian: JSONText.word(of: text, at: index))
        }

        /// How many bytes precede the first one that must not be copied as it is.
        var plainCount: Int {
            let marked = (bytes | isControl | isEscaped) & Self.highest
            return marked.trailingZeroBitCount / 8
        }

        private var low: UInt64 { bytes & ~Self.highest }

        /// Marks bytes below 0x20: adding 0x60 to them does not reach 0x80.
        private var isControl: UInt64 { ~(low + 0x6060_6060_6060_6060) }

        private var isEscaped: UInt64 {
            equal(UInt8(ascii: "\"")) | equal(UInt8(ascii: "\\")) | equal(UInt8(ascii: "/"))
        }

        /// Marks bytes that equal a character: only where all seven bits agree does the subtraction leave 0x80.
        private func equal(_ character: UInt8) -> UInt64 {
            Self.highest - (low ^ UInt64(character) * 0x0101_0101_0101_0101)
        }
    }

    /// An escaped character: its bytes, the first one lowest, and their number.
    fileprivate struct Escape {
        let bytes: UInt64
        let length: Int
    }

    /// The escapes, by ASCII character.
    private static let escapes: [Escape] = (UInt8.min..<0x80).map { byte in
        let character = String(decoding: CollectionOfOne(byte), as: UTF8.self)
        return switch byte {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): Escape("\\" + character)
        case 0x08: Escape("\\b")
        case 0x0c: Escape("\\f")
        case 0x0a: Escape("\\n")
        case 0x0d: Escape("\\r")
        case 0x09: Escape("\\t")
        case 0x00...0x1f: Escape("\\u00\(byte < 0x10 ? "0" : "")\(String(byte, radix: 16))")
        default: Escape(character)
        }
    }

    // MARK: - Beyond ASCII

    /// Appends the character at an index, which is not of ASCII, or all up to the next one of ASCII, and returns where it ends.
    private static func appendNonASCII(
        _ text: Span<UInt8>, from start: Int, to output: inout some EscapeOutput
    ) -> Int {
        if start + 4 <= text.count {
            // The masks select the bits that mark the first byte of a character and the others.
            let bytes = UInt32(littleEndian: word(of: text, at: start))
            if bytes & 0xc0e0 == 0x80c0, bytes & 0x1e != 0 {
                output.append(codeUnit: (bytes & 0x1f) << 6 | bytes >> 8 & 0x3f)
                return start + 2
            }
            let third = (bytes & 0x0f) << 12 | bytes >> 2 & 0xfc0 | bytes >> 16 & 0x3f
            if bytes & 0xc0_c0f0 == 0x80_80e0, third >= 0x800, third & 0xf800 != 0xd800 {
                output.append(codeUnit: third)
                return start + 3
            }
            let fourth = (bytes & 0x07) << 18 | (bytes & 0x3f00) << 4 | bytes >> 10 & 0xfc0 | bytes >> 24 & 0x3f
            if bytes & 0xc0c0_c0f8 == 0x8080_80f0, fourth >= 0x10000, fourth < 0x110000 {
                output.append(codeUnit: 0xd7c0 + fourth >> 10)
                output.append(codeUnit: 0xdc00 + fourth & 0x3ff)
                return start + 4
            }
        }
        // The end of the text, or bytes that are not UTF-8.
        var end = start + 1
        while end < text.count, text[end] >= 0x80 { end += 1 }
        for unit in String(decoding: text.bytes(start..<end), as: UTF8.self).utf16 {
            output.append(codeUnit: UInt32(unit))
        }
        return end
    }
}

extension JSONText.Escape {
    fileprivate init(_ text: String) {
        bytes = text.utf8.reversed().reduce(0) { $0 << 8 | UInt64($1) }
        length = text.utf8.count
    }
}

/// Takes escaped text.
private protocol EscapeOutput {
    /// Takes the lowest `count` of eight bytes, the lowest one first.
    mutating func append(_ bytes: UInt64, count: Int)
    /// Takes `\uxxxx` for a UTF-16 code unit.
    mutating func append(codeUnit: UInt32)
}

private struct EscapeCounter: EscapeOutput {
    private(set) var count = 0

    mutating func append(_ bytes: UInt64, count: Int) { self.count += count }
    mutating func append(codeUnit: UInt32) { count += 6 }
}

/// Writes escaped text into reserved memory.
///
/// It always writes eight bytes at once, as that is fastest; if fewer count, the next write overwrites the rest. Every write is
/// checked against the end of the memory.
@safe private struct EscapeWriter: EscapeOutput {
    /// Bytes that the memory needs beyond the escaped text.
    static let slack = 8

    private let room: UnsafeMutableRawBufferPointer
    private let size: Int
    private(set) var count = 0

    init(_ room: Slice<UnsafeMutableBufferPointer<UInt8>>) {
        unsafe self.room = UnsafeMutableRawBufferPointer(UnsafeMutableBufferPointer(rebasing: room))
        size = unsafe room.count
    }

    mutating func append(_ bytes: UInt64, count added: Int) {
        precondition(size - count >= 8, "there is room for the text and the slack")
        unsafe room.storeBytes(of: bytes.littleEndian, toByteOffset: count, as: UInt64.self)
        count += added
    }

    mutating func append(codeUnit: UInt32) {
        // A hexadecimal digit in each byte, the first one lowest.
        let digits = codeUnit >> 12 | codeUnit & 0xf00 | (codeUnit & 0xf0) << 12 | (codeUnit & 0xf) << 24
        // 6 more carry those from ten on into bit 4; the letters begin 0x27 behind the digits.
        let letters = (digits + 0x0606_0606) >> 4 & 0x0101_0101
        let start = UInt64(UInt8(ascii: "\\")) | UInt64(UInt8(ascii: "u")) << 8
        append(start | UInt64(digits + 0x3030_3030 + letters * 0x27) << 16, count: 6)
    }
}
