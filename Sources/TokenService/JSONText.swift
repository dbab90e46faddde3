/// Strings as PHP's `json_encode` writes them: slashes escaped, everything beyond ASCII as `\uxxxx`.
package enum JSONText {
    /// Appends the inside of a JSON string.
    ///
    /// - Parameters:
    ///   - text: UTF-8; a byte that is not part of a valid sequence becomes U+FFFD.
    ///   - output: Where it goes.
    package static func appendEscaped(_ text: [UInt8], to output: inout [UInt8]) {
        // No byte takes more than six: one becomes `\u00xx`, two or three become one unit, four become two.
        output.append(addingCapacity: text.count * 6) { escaped in
            let bytes = text.span
            let escapes = escapes
            var index = 0
            while index < bytes.count {
                let run = plainBytes(bytes, from: index, escapes)
                append(bytes.extracting(index..<(index + run)), to: &escaped)
                index += run
                guard index < bytes.count else { return }
                let byte = bytes[index]
                let escape = escapes[Int(byte)]
                if escape.rawValue > Escape.unicode.rawValue {
                    escaped.append(UInt8(ascii: "\\"))
                    escaped.append(escape.rawValue)
                } else if byte < 0x80 {
                    append(unit: UInt16(byte), to: &escaped)
                } else {
                    let (scalar, length) = scalar(at: index, of: bytes)
                    append(scalar, to: &escaped)
                    index += length - 1
                }
                index += 1
            }
        }
    }

    /// How many bytes from an index on stay as they are.
    private static func plainBytes(_ bytes: Span<UInt8>, from start: Int, _ escapes: [Escape]) -> Int {
        var index = start
        while index < bytes.count, escapes[Int(bytes[index])] == .none { index += 1 }
        return index - start
    }

    private static func append(_ bytes: Span<UInt8>, to output: inout OutputSpan<UInt8>) {
        precondition(bytes.count <= output.freeCapacity, "there is room for six times the text")
        unsafe output.withUnsafeMutableBufferPointer { target, count in
            unsafe bytes.withUnsafeBufferPointer { source in
                guard let from = source.baseAddress, let to = target.baseAddress else { return }
                unsafe (to + count).update(from: from, count: source.count)
            }
            count += bytes.count
        }
    }

    /// What becomes of a byte: nothing, `\uxxxx`, or a backslash and this letter.
    private struct Escape: RawRepresentable, Equatable {
        let rawValue: UInt8
        static let none = Escape(rawValue: 0)
        static let unicode = Escape(rawValue: 1)
    }

    private static let escapes: [Escape] = (UInt8.min...UInt8.max).map { byte in
        switch byte {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): Escape(rawValue: byte)
        case 0x08: Escape(rawValue: UInt8(ascii: "b"))
        case 0x0c: Escape(rawValue: UInt8(ascii: "f"))
        case 0x0a: Escape(rawValue: UInt8(ascii: "n"))
        case 0x0d: Escape(rawValue: UInt8(ascii: "r"))
        case 0x09: Escape(rawValue: UInt8(ascii: "t"))
        case 0x00...0x1f, 0x80...0xff: .unicode
        default: .none
        }
    }

    private static func append(_ scalar: UInt32, to output: inout OutputSpan<UInt8>) {
        if scalar < 0x10000 {
            append(unit: UInt16(scalar), to: &output)
        } else {
            append(unit: UInt16(0xd800 + (scalar - 0x10000) >> 10), to: &output)
            append(unit: UInt16(0xdc00 + (scalar - 0x10000) & 0x3ff), to: &output)
        }
    }

    private static func append(unit: UInt16, to output: inout OutputSpan<UInt8>) {
        output.append(UInt8(ascii: "\\"))
        output.append(UInt8(ascii: "u"))
        for shift: UInt16 in [12, 8, 4, 0] {
            let digit = UInt8(unit >> shift & 0xf)
            output.append(digit < 10 ? UInt8(ascii: "0") + digit : UInt8(ascii: "a") + digit - 10)
        }
    }

    /// Decodes the sequence that starts at an index with a byte from 0x80; U+FFFD with length 1 where there is none.
    private static func scalar(at index: Int, of bytes: Span<UInt8>) -> (scalar: UInt32, length: Int) {
        let first = bytes[index]
        let (length, lead): (Int, UInt32) =
            switch first {
            case 0xc2...0xdf: (2, UInt32(first & 0x1f))
            case 0xe0...0xef: (3, UInt32(first & 0x0f))
            case 0xf0...0xf4: (4, UInt32(first & 0x07))
            default: (1, 0xfffd)
            }
        guard index + length <= bytes.count else { return (0xfffd, 1) }
        var scalar = lead
        for next in 1..<max(length, 1) {
            guard bytes[index + next] & 0xc0 == 0x80 else { return (0xfffd, 1) }
            scalar = scalar << 6 | UInt32(bytes[index + next] & 0x3f)
        }
        let smallest: [UInt32] = [0, 0, 0x80, 0x800, 0x10000]
        let isValid = scalar >= smallest[length] && scalar <= 0x10ffff && !(0xd800...0xdfff).contains(scalar)
        return isValid ? (scalar, length) : (0xfffd, 1)
    }
}
