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
    package static func name(_ range: ByteRange, of bytes: Span<UInt8>, standsFor name: StaticString) -> Bool {
        if bytes.equals(range, name) { return true }
        // Decoding never makes a name longer, so that most strangers are dismissed by their length.
        let count = name.utf8CodeUnitCount
        guard range.count > count, range.count <= count * 3 else { return false }
        var decoded: [UInt8] = []
        appendDecoded(range, of: bytes, to: &decoded)
        return decoded.span.equals(ByteRange(0, decoded.count), name)
    }

    /// Appends the bytes that a name or value stands for.
    package static func appendDecoded(_ range: ByteRange, of bytes: Span<UInt8>, to decoded: inout [UInt8]) {
        let isPlain =
            bytes.firstIndex(of: UInt8(ascii: "%"), in: range.indices) == nil
            && bytes.firstIndex(of: UInt8(ascii: "+"), in: range.indices) == nil
        if isPlain { return decoded.append(range, in: bytes) }
        let encoded = bytes.extracting(range.indices)
        decoded.append(addingCapacity: encoded.count) { output in
            unsafe output.withUnsafeMutableBufferPointer { room, count in
                unsafe count = decode(encoded, into: room)
            }
        }
    }

    /// Decodes into room that has to hold as many bytes, and returns how many it took.
    private static func decode(_ encoded: Span<UInt8>, into room: UnsafeMutableBufferPointer<UInt8>) -> Int {
        // Not through an OutputSpan, whose checks for each byte take longer than the decoding: a byte that is written has
        // been read before, so that the room cannot run out.
        precondition(room.count >= encoded.count, "decoding makes nothing longer")
        var (index, count) = (0, 0)
        while index < encoded.count {
            let byte = encoded[index]
            if byte == UInt8(ascii: "+") {
                unsafe room[count] = .space
            } else if byte == UInt8(ascii: "%"), index + 2 < encoded.count,
                let high = ByteClass.hexValue(encoded[index + 1]), let low = ByteClass.hexValue(encoded[index + 2])
            {
                unsafe room[count] = high << 4 | low
                index += 2
            } else {
                unsafe room[count] = byte
            }
            count += 1
            index += 1
        }
        return count
    }
}
