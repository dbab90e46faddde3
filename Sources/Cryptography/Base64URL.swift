/// Base64 with the alphabet for URLs and file names, without padding (RFC 4648, section 5; RFC 7515, section 2).
package enum Base64URL {
    /// How many characters stand for `count` bytes.
    package static func length(of count: Int) -> Int { (count * 4 + 2) / 3 }

    /// Appends the characters that stand for some bytes.
    package static func append(_ bytes: Span<UInt8>, to text: inout [UInt8]) {
        // Appending no element to an empty array writes to the storage that all empty arrays share.
        guard !bytes.isEmpty else { return }
        // In one step, so that the array's room is not checked for each character.
        text.append(addingCapacity: length(of: bytes.count)) { output in
            var index = 0
            while index + 3 <= bytes.count {
                let bits = UInt32(bytes[index]) << 16 | UInt32(bytes[index + 1]) << 8 | UInt32(bytes[index + 2])
                append(bits, count: 4, to: &output)
                index += 3
            }
            switch bytes.count - index {
            case 1: append(UInt32(bytes[index]) << 16, count: 2, to: &output)
            case 2: append(UInt32(bytes[index]) << 16 | UInt32(bytes[index + 1]) << 8, count: 3, to: &output)
            default: break
            }
        }
    }

    package static func encode(_ bytes: Span<UInt8>) -> String {
        var text: [UInt8] = []
        append(bytes, to: &text)
        return String(decoding: text, as: UTF8.self)
    }

    /// The bytes that some characters stand for; nil unless `append` would give exactly these characters.
    ///
    /// So padding, white space, characters of another alphabet, an impossible length and unused bits that are not zero are
    /// refused: no two texts mean the same bytes.
    package static func decode(_ text: Span<UInt8>) -> [UInt8]? {
        guard text.count % 4 != 1 else { return nil }
        var bytes: [UInt8] = []
        bytes.reserveCapacity(text.count / 4 * 3 + 2)
        var (bits, count): (UInt32, Int) = (0, 0)
        for index in text.indices {
            let value = values[Int(text[index])]
            guard value < 64 else { return nil }
            bits = bits << 6 | UInt32(value)
            count += 6
            if count >= 8 {
                count -= 8
                bytes.append(UInt8(truncatingIfNeeded: bits >> UInt32(count)))
            }
        }
        guard bits & ((1 << UInt32(count)) - 1) == 0 else { return nil }
        return bytes
    }

    /// Appends the first `count` of the four characters of 24 bits.
    private static func append(_ bits: UInt32, count: Int, to text: inout OutputSpan<UInt8>) {
        for index in 0..<count { text.append(digits[Int(bits >> UInt32(18 - 6 * index)) & 63]) }
    }

    private static let digits = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".utf8)

    /// The value of each character; 255 for those outside the alphabet.
    private static let values: [UInt8] = {
        var values = [UInt8](repeating: 255, count: 256)
        for (value, digit) in digits.enumerated() { values[Int(digit)] = UInt8(value) }
        return values
    }()
}

/// Bytes as hexadecimal digits.
package enum Hexadecimal {
    private static let digits = Array("0123456789abcdef".utf8)

    /// Appends two digits for each byte.
    package static func append(_ bytes: Span<UInt8>, to text: inout [UInt8]) {
        for index in bytes.indices {
            text.append(digits[Int(bytes[index] >> 4)])
            text.append(digits[Int(bytes[index] & 15)])
        }
    }

    package static func text(_ bytes: [UInt8]) -> String {
        var text: [UInt8] = []
        append(bytes.span, to: &text)
        return String(decoding: text, as: UTF8.self)
    }

    /// The bytes that digits of either case stand for; nil for other characters, or if there are not two for each byte.
    package static func decode(_ text: some Collection<UInt8>) -> [UInt8]? {
        var bytes: [UInt8] = []
        // Enough that the array does not grow, which would leave copies of a key in memory.
        bytes.reserveCapacity(text.count / 2)
        var high: UInt8?
        for character in text {
            guard let digit = Character(UnicodeScalar(character)).hexDigitValue.map(UInt8.init) else { return nil }
            if let first = high.take() { bytes.append(first << 4 | digit) } else { high = digit }
        }
        return high == nil ? bytes : nil
    }
}

extension [UInt8] {
    /// Appends bytes that `body` writes; appends none if it returns false.
    ///
    /// - Parameters:
    ///   - added: How many bytes, at least 0.
    ///   - body: Writes the bytes to the given place.
    @inlinable
    public mutating func append(count added: Int, writing body: (UnsafeMutablePointer<UInt8>) -> Bool) -> Bool {
        var isWritten = false
        // `body` needs a valid pointer even for no bytes.
        append(addingCapacity: Swift.max(added, 1)) { output in
            unsafe output.withUnsafeMutableBufferPointer { room, count in
                precondition(room.count >= added, "there is as much room as was asked for")
                isWritten = unsafe room.baseAddress.map { unsafe body($0) } ?? false
                count = isWritten ? added : 0
            }
        }
        return isWritten
    }

    /// Appends the bytes of a span.
    @inlinable
    public mutating func append(span: Span<UInt8>) {
        unsafe span.withUnsafeBufferPointer { unsafe append(contentsOf: $0) }
    }
}
