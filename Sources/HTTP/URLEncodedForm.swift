/// `application/x-www-form-urlencoded`, in a query or a body, as PHP reads it: split at `&`, then at the first `=`; `+` is
/// a space, `%` with two hexadecimal digits a byte, any other `%` itself.
package enum URLEncodedForm {
    /// Calls `body` with the undecoded name and value of each pair, in order.
    ///
    /// Empty segments are skipped; without `=` the value is empty.
    package static func forEachPair(
        in range: ByteRange, of bytes: Span<UInt8>, _ body: (_ name: ByteRange, _ value: ByteRange) -> Void
    ) {
        var start = Int(range.start)
        let end = Int(range.end)
        while start < end {
            let segmentEnd = bytes.firstIndex(of: UInt8(ascii: "&"), in: start..<end) ?? end
            if segmentEnd > start {
                let equals = bytes.firstIndex(of: UInt8(ascii: "="), in: start..<segmentEnd)
                body(
                    ByteRange(start, equals ?? segmentEnd),
                    ByteRange(equals.map { $0 + 1 } ?? segmentEnd, segmentEnd)
                )
            }
            start = segmentEnd + 1
        }
    }

    /// Whether an undecoded name stands for `name`.
    package static func name(_ range: ByteRange, of bytes: Span<UInt8>, standsFor name: [UInt8]) -> Bool {
        if bytes.equals(range, name) { return true }
        // Decoding never makes a name longer, so that most strangers are dismissed by their length.
        guard range.count > name.count, range.count <= name.count * 3 else { return false }
        return decoded(range, of: bytes) == name
    }

    /// The bytes that a name or value stands for.
    package static func decoded(_ range: ByteRange, of bytes: Span<UInt8>) -> [UInt8] {
        let end = Int(range.end)
        return [UInt8](capacity: range.count) { decoded in
            var index = Int(range.start)
            while index < end {
                let byte = bytes[index]
                if byte == UInt8(ascii: "+") {
                    decoded.append(.space)
                } else if byte == UInt8(ascii: "%"), index + 2 < end,
                    let high = ByteClass.hexValue(bytes[index + 1]), let low = ByteClass.hexValue(bytes[index + 2])
                {
                    decoded.append(high << 4 | low)
                    index += 2
                } else {
                    decoded.append(byte)
                }
                index += 1
            }
        }
    }
}
