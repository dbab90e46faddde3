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
    package static func appendEscaped(_ text: Span<UInt8>, to output: inout [UInt8]) {
        // For a short text, reserving room for the worst case costs less than measuring it first.
        let length = text.count <= shortText ? 6 * text.count : escapedLength(of: text)
        output.append(addingCapacity: length + EscapeWriter.slack) { output in
            unsafe output.withUnsafeMutableBufferPointer { room, count in
                var writer = unsafe EscapeWriter(room[count...])
                append(text, to: &writer)
                count += writer.count
            }
        }
    }

    private static let shortText = 4 << 10

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
            if index + Block.scalarCount <= text.count {
                let block = Block(text, at: index)
                if block.isPlain {
                    output.append(block.bytes)
                    index += Block.scalarCount
                    continue
                }
            }
            let next = min(index + Block.scalarCount, text.count)
            while index < next {
                let byte = text[index]
                if byte < 0x80 {
                    output.append(escapes[Int(byte)])
                    index += 1
                } else {
                    index = appendNonASCII(text, from: index, to: &output)
                }
            }
        }
    }

    // MARK: - ASCII

    /// Eight bytes, tested together.
    ///
    /// Each test yields its result in the highest bit of each byte. In ASCII these bits are 0, so that sums and differences set
    /// them without a carry into the next byte.
    private struct Block {
        static let scalarCount = 8

        private static let highest: UInt64 = 0x8080_8080_8080_8080

        let bytes: UInt64

        init(_ text: Span<UInt8>, at index: Int) {
            // All bit patterns are valid.
            bytes = unsafe text.bytes.unsafeLoadUnaligned(fromByteOffset: index, as: UInt64.self)
        }

        /// Whether no byte needs an escape.
        var isPlain: Bool { bytes & Self.highest == 0 && (isControl | isEscaped) == 0 }

        /// Marks bytes below 0x20: adding 0x60 to them does not reach 0x80.
        private var isControl: UInt64 { ~(bytes + 0x6060_6060_6060_6060) & Self.highest }

        private var isEscaped: UInt64 {
            equal(UInt8(ascii: "\"")) | equal(UInt8(ascii: "\\")) | equal(UInt8(ascii: "/"))
        }

        /// Marks bytes that equal a character: only where all bits agree does the subtraction leave 0x80.
        private func equal(_ character: UInt8) -> UInt64 {
            (Self.highest - (bytes ^ UInt64(character) * 0x0101_0101_0101_0101)) & Self.highest
        }
    }

    /// An escaped character: its bytes, the first one lowest, and their number.
    fileprivate struct Escape {
        let bytes: UInt64
        let length: UInt8
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

    /// Appends the characters up to the next one of ASCII, and returns where that is.
    private static func appendNonASCII(
        _ text: Span<UInt8>, from start: Int, to output: inout some EscapeOutput
    ) -> Int {
        var end = start + 1
        while end < text.count, text[end] >= 0x80 { end += 1 }
        for unit in String(decoding: text.bytes(start..<end), as: UTF8.self).utf16 { output.append(escape(of: unit)) }
        return end
    }

    /// `\uxxxx`.
    private static func escape(of unit: UInt16) -> Escape {
        let start = UInt64(UInt8(ascii: "\\")) | UInt64(UInt8(ascii: "u")) << 8
        let digits = UInt64(hexadecimal[Int(unit >> 8)]) | UInt64(hexadecimal[Int(unit & 0xff)]) << 16
        return Escape(bytes: start | digits << 16, length: 6)
    }

    /// The two hexadecimal digits of a byte, the first one lowest.
    private static let hexadecimal: [UInt16] = (UInt8.min...UInt8.max).map { byte in
        let digits = Array("0123456789abcdef".utf8)
        return UInt16(digits[Int(byte >> 4)]) | UInt16(digits[Int(byte & 0xf)]) << 8
    }
}

extension JSONText.Escape {
    fileprivate init(_ text: String) {
        bytes = text.utf8.reversed().reduce(0) { $0 << 8 | UInt64($1) }
        length = UInt8(text.utf8.count)
    }
}

/// Takes escaped text.
private protocol EscapeOutput {
    /// Takes eight bytes in memory order.
    mutating func append(_ bytes: UInt64)
    mutating func append(_ escape: JSONText.Escape)
}

private struct EscapeCounter: EscapeOutput {
    private(set) var count = 0

    mutating func append(_ bytes: UInt64) { count += 8 }
    mutating func append(_ escape: JSONText.Escape) { count += Int(escape.length) }
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

    mutating func append(_ bytes: UInt64) {
        precondition(size - count >= 8, "there is room for the text and the slack")
        unsafe room.storeBytes(of: bytes, toByteOffset: count, as: UInt64.self)
        count += 8
    }

    mutating func append(_ escape: JSONText.Escape) {
        append(escape.bytes.littleEndian)
        count -= 8 - Int(escape.length)
    }
}
