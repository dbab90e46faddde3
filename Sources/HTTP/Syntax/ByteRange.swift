import Glibc

/// A range of bytes in a request, counted from the request's first byte.
///
/// Half as large as `Range<Int>`, as a head holds several.
package struct ByteRange: Hashable, Sendable {
    package var start: UInt32
    package var end: UInt32

    package init(_ start: Int, _ end: Int) {
        self.start = UInt32(start)
        self.end = UInt32(end)
    }

    package static let empty = ByteRange(0, 0)

    package var isEmpty: Bool { start == end }
    package var count: Int { Int(end - start) }
    package var indices: Range<Int> { Int(start)..<Int(end) }
}

extension Span<UInt8> {
    /// The bytes of a range as a `String`, in which U+FFFD replaces bytes that are not valid UTF-8.
    package func text(_ range: ByteRange) -> String {
        String(decoding: [UInt8](range, in: self), as: UTF8.self)
    }

    /// Whether the bytes of a range are `text`, which is ASCII.
    package func equals(_ range: ByteRange, _ text: StaticString) -> Bool {
        guard range.count == text.utf8CodeUnitCount else { return false }
        // The lengths were compared above.
        return unsafe extracting(range.indices).withUnsafeBufferPointer { part in
            guard let start = part.baseAddress else { return true }
            return unsafe memcmp(start, text.utf8Start, part.count) == 0
        }
    }

    /// Whether the bytes of a range are those of `text`.
    package func equals(_ range: ByteRange, _ text: [UInt8]) -> Bool {
        guard range.count == text.count else { return false }
        // The lengths were compared above.
        return unsafe extracting(range.indices).withUnsafeBufferPointer { part in
            guard let start = part.baseAddress else { return true }
            return unsafe memcmp(start, text, part.count) == 0
        }
    }

    /// Whether the bytes of a range are `text` in any case; `text` is lower-case letters and ASCII below `@`.
    package func equalsIgnoringCase(_ range: ByteRange, _ text: StaticString) -> Bool {
        guard range.count == text.utf8CodeUnitCount else { return false }
        let (part, literal) = unsafe (extracting(range.indices), UnsafeRawPointer(text.utf8Start))
        var index = 0
        // The literal's length was checked; the loads are inside the part.
        while index + 8 <= part.count {
            let word = unsafe part.bytes.unsafeLoadUnaligned(fromByteOffset: index, as: UInt64.self)
            let other = unsafe literal.loadUnaligned(fromByteOffset: index, as: UInt64.self)
            guard (word ^ other) & ~Self.caseBits(other) == 0 else { return false }
            index += 8
        }
        while index < part.count {
            let other = unsafe literal.load(fromByteOffset: index, as: UInt8.self)
            guard UInt64(part[index] ^ other) & ~Self.caseBits(UInt64(other)) == 0 else { return false }
            index += 1
        }
        return true
    }

    /// Whether the bytes of a range are `text` in any case; `text` is in lower case.
    func equalsIgnoringCase(_ range: ByteRange, _ text: [UInt8]) -> Bool {
        guard range.count == text.count else { return false }
        let part = extracting(range.indices)
        for index in text.indices where ByteClass.lowerCase(part[index]) != text[index] { return false }
        return true
    }

    /// The bits in which the bytes of a word may differ from these: bit 5 for letters, which alone have bit 6 set.
    @inline(__always)
    private static func caseBits(_ lowerCase: UInt64) -> UInt64 {
        (lowerCase & 0x4040_4040_4040_4040) >> 1
    }

    /// The first position of a byte in a range of indices.
    package func firstIndex(of byte: UInt8, in range: Range<Int>) -> Int? {
        precondition(range.lowerBound >= 0 && range.upperBound <= count, "the range lies inside the span")
        return unsafe withUnsafeBufferPointer { buffer in
            guard let base = buffer.baseAddress, !range.isEmpty else { return nil }
            // glibc's memchr looks at 32 bytes a step; the bounds were checked above.
            guard let found = unsafe memchr(base + range.lowerBound, Int32(byte), range.count) else { return nil }
            return unsafe UnsafeRawPointer(base).distance(to: UnsafeRawPointer(found))
        }
    }

    /// A range without the blanks and tabs at its ends.
    package func trimmed(_ range: ByteRange) -> ByteRange {
        var (start, end) = (Int(range.start), Int(range.end))
        while start < end && (self[start] == .space || self[start] == .tab) { start += 1 }
        while start < end && (self[end - 1] == .space || self[end - 1] == .tab) { end -= 1 }
        return ByteRange(start, end)
    }

    /// Whether all bytes of a range of indices are in a class.
    package func all(_ range: Range<Int>, in byteClass: ByteClass) -> Bool {
        // A span of its own, so that the compiler knows the bounds and no step checks them.
        let part = extracting(range)
        var index = 0
        if let plain = byteClass.plain {
            // Checked in the load.
            while index + 8 <= part.count,
                plain.areAll(unsafe part.bytes.unsafeLoadUnaligned(fromByteOffset: index, as: UInt64.self))
            {
                index += 8
            }
        }
        while index < part.count {
            guard byteClass.contains(part[index]) else { return false }
            index += 1
        }
        return true
    }
}

extension [UInt8] {
    /// Copies the bytes of a range out of a span.
    package init(_ range: ByteRange, in span: Span<UInt8>) {
        self = []
        append(range, in: span)
    }

    /// Appends the bytes of a range of a span.
    package mutating func append(_ range: ByteRange, in span: Span<UInt8>) {
        unsafe span.extracting(range.indices).withUnsafeBufferPointer { unsafe append(contentsOf: $0) }
    }

    /// Moves bytes towards the front; the positions that they leave keep their contents.
    mutating func moveBytes(from source: Int, to target: Int, count moved: Int) {
        precondition(target <= source && target >= 0 && source + moved <= count, "the move stays inside the array")
        unsafe withUnsafeMutableBufferPointer { buffer in
            guard let base = buffer.baseAddress else { return }
            unsafe _ = memmove(base + target, base + source, moved)
        }
    }
}
