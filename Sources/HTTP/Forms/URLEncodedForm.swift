/// `application/x-www-form-urlencoded`, in a query or a body, as PHP reads it: split at `&`, then at the first `=`; `+` is
/// a space, `%` with two hexadecimal digits a byte, any other `%` itself.
package enum URLEncodedForm {
    /// Where a form comes from; PHP counts their pairs differently (`max_input_vars`, by default 1,000).
    package enum Source: Sendable {
        /// The first 1,000 pairs are read; empty segments do not count.
        case query
        /// The first 1,001 segments are read; empty ones count.
        case body
    }

    /// Calls `body` with the undecoded name and value of each pair that is read, in order.
    ///
    /// Skips empty segments; without `=` the value is empty.
    package static func forEachPair(
        in range: ByteRange, of bytes: Span<UInt8>, from source: Source,
        _ body: (_ name: ByteRange, _ value: ByteRange) -> Void
    ) {
        var start = Int(range.start)
        let end = Int(range.end)
        var left: Int
        let emptyCost: Int
        (left, emptyCost) =
            switch source {
            case .query: (1_000, 0)
            case .body: (1_001, 1)
            }
        while start < end, left > 0 {
            let segmentEnd = bytes.firstIndex(of: UInt8(ascii: "&"), in: start..<end) ?? end
            left -= segmentEnd > start ? 1 : emptyCost
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

    /// The role of an undecoded name for a parameter.
    package static func role(
        of name: ByteRange, in bytes: Span<UInt8>, for parameter: StaticString
    ) -> ParameterRole {
        if bytes.equals(name, parameter) { return .parameter }
        // Decoding never makes a name longer, and only escapes can turn another text into the parameter's name.
        let count = parameter.utf8CodeUnitCount
        guard name.count > count else { return .other }
        let start = Int(name.start)
        // The contract's parameters begin with different letters, so that a name is decoded for one of them at most.
        var first = bytes[start]
        if first == UInt8(ascii: "%"), let high = ByteClass.hexValue(bytes[start + 1]),
            let low = ByteClass.hexValue(bytes[start + 2])
        {
            first = high << 4 | low
        }
        guard unsafe first == parameter.utf8Start.pointee else { return .other }
        let mayMatch =
            bytes.equals(ByteRange(start, start + count), parameter)
            || bytes.firstIndex(of: UInt8(ascii: "%"), in: start..<min(start + 3 * count, Int(name.end))) != nil
        guard mayMatch else { return .other }
        let encoded = bytes.extracting(name.indices)
        return unsafe withUnsafeTemporaryAllocation(of: UInt8.self, capacity: encoded.count) { room in
            let decoded = unsafe room.extracting(..<decode(encoded, into: UnsafeMutableRawBufferPointer(room)))
            return unsafe ParameterRole(of: decoded.span, for: parameter)
        }
    }

    /// The decoded bytes of a name or value.
    package static func decoded(_ range: ByteRange, of bytes: Span<UInt8>) -> [UInt8] {
        let isPlain =
            bytes.firstIndex(of: UInt8(ascii: "%"), in: range.indices) == nil
            && bytes.firstIndex(of: UInt8(ascii: "+"), in: range.indices) == nil
        if isPlain { return [UInt8](range, in: bytes) }
        let encoded = bytes.extracting(range.indices)
        var decoded: [UInt8] = []
        decoded.append(addingCapacity: encoded.count) { output in
            unsafe output.withUnsafeMutableBufferPointer { room, count in
                unsafe count = decode(encoded, into: UnsafeMutableRawBufferPointer(room))
            }
        }
        return decoded
    }

    /// Decodes into a buffer that is at least as long, and returns how many bytes were written.
    private static func decode(_ encoded: Span<UInt8>, into room: UnsafeMutableRawBufferPointer) -> Int {
        // Not through an OutputSpan, whose checks for each byte take longer than the decoding: a byte that is written has
        // been read before, so that the room cannot run out.
        precondition(room.count >= encoded.count, "decoding makes nothing longer")
        var (index, count) = (0, 0)
        while index < encoded.count {
            var byte = encoded[index]
            if byte != UInt8(ascii: "%"), byte != UInt8(ascii: "+"), index + 8 <= encoded.count {
                // The bytes from the first escape on are overwritten later.
                let bytes = unsafe encoded.bytes.unsafeLoadUnaligned(fromByteOffset: index, as: UInt64.self)
                unsafe room.storeBytes(of: bytes, toByteOffset: count, as: UInt64.self)
                let plain = plainCount(of: UInt64(littleEndian: bytes))
                index += plain
                count += plain
                if plain == 8 { continue }
                byte = encoded[index]
            }
            if byte == UInt8(ascii: "+") {
                byte = .space
            } else if byte == UInt8(ascii: "%"), index + 2 < encoded.count,
                let high = ByteClass.hexValue(encoded[index + 1]), let low = ByteClass.hexValue(encoded[index + 2])
            {
                byte = high << 4 | low
                index += 2
            }
            unsafe room[count] = byte
            count += 1
            index += 1
        }
        return count
    }

    /// How many of eight bytes, of which the first is the lowest, precede the first `+` or `%`.
    private static func plainCount(of bytes: UInt64) -> Int {
        let (highest, others) = (eachByte(0x80), eachByte(0x7f))
        // Marks bytes that are 0: in all others, a low bit is carried into the highest one or that is set already.
        func zeros(in word: UInt64) -> UInt64 { ~((word & others) + others | word) & highest }
        let marked = zeros(in: bytes ^ eachByte(UInt8(ascii: "+"))) | zeros(in: bytes ^ eachByte(UInt8(ascii: "%")))
        return marked.trailingZeroBitCount / 8
    }

    private static func eachByte(_ byte: UInt8) -> UInt64 { UInt64(byte) * 0x0101_0101_0101_0101 }
}

/// The role of a name in a query or a form for one of the contract's parameters.
package enum ParameterRole: Hashable, Sendable {
    /// The parameter's own name.
    case parameter
    /// An element of an array of that name, such as `unique_id[]` or `unique_id[a]b`: in PHP the array replaces a plain value
    /// that came before it.
    case element
    case other

    /// - Parameters:
    ///   - bytes: A decoded name.
    ///   - parameter: The parameter's name.
    package init(of bytes: Span<UInt8>, for parameter: StaticString) {
        let count = parameter.utf8CodeUnitCount
        guard bytes.count >= count, bytes.equals(ByteRange(0, count), parameter) else {
            self = .other
            return
        }
        guard bytes.count > count else {
            self = .parameter
            return
        }
        // PHP cuts a name off at a NUL, which makes it another name. A bracket that is not closed opens no array.
        let isElement =
            bytes[count] == UInt8(ascii: "[")
            && bytes.firstIndex(of: UInt8(ascii: "]"), in: count..<bytes.count) != nil
            && bytes.firstIndex(of: 0, in: count..<bytes.count) == nil
        self = isElement ? .element : .other
    }
}
