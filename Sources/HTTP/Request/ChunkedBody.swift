/// Decodes chunked transfer coding in place (RFC 9112, section 7.1): moves the data to the front, over the size lines.
struct ChunkedBody {
    private enum State {
        case size
        case data(remaining: Int)
        case dataEnd
        case trailers
    }

    /// The longest size line with its extensions: no honest client sends longer ones.
    static let lineLimit = 256

    private var state = State.size
    /// The index of the next undecoded byte.
    private var read: Int
    /// The index for the next decoded byte, which is also the end of the body so far.
    private(set) var end: Int
    private var start: Int
    private var trailerBytes = 0
    private var extensionBytes = 0

    /// - Parameter start: The index of the body's first byte.
    init(at start: Int) {
        self.start = start
        read = start
        end = start
    }

    /// Adjusts the positions after bytes were removed from the front of the buffer.
    mutating func moveForward(by count: Int) {
        start -= count
        read -= count
        end -= count
    }

    /// Decodes what has arrived.
    ///
    /// - Returns: The index after the body's last byte on the wire; nil if more is needed.
    mutating func decode(_ bytes: inout [UInt8], limits: RequestLimits) throws(Refusal) -> Int? {
        while true {
            switch state {
            case .size:
                guard let line = try nextLine(in: bytes, limit: Self.lineLimit, else: .chunkLineTooLong) else {
                    return closeGap(in: &bytes)
                }
                let (size, digits) = try Self.size(line, of: bytes.span)
                // All extensions together may be as long as a head, so that a body does not cost many times its size.
                extensionBytes += line.count - digits
                guard extensionBytes <= limits.head else { throw .chunkExtensionsTooLong }
                guard size <= limits.body - (end - start) else { throw .bodyTooLarge }
                state = size == 0 ? .trailers : .data(remaining: size)
            case .data(let remaining):
                let taken = min(remaining, bytes.count - read)
                bytes.moveBytes(from: read, to: end, count: taken)
                read += taken
                end += taken
                guard taken == remaining else {
                    state = .data(remaining: remaining - taken)
                    return closeGap(in: &bytes)
                }
                state = .dataEnd
            case .dataEnd:
                guard bytes.count - read >= 2 else { return closeGap(in: &bytes) }
                guard bytes[read] == .carriageReturn, bytes[read + 1] == .lineFeed else { throw .malformedChunkEnd }
                read += 2
                state = .size
            case .trailers:
                guard let line = try nextLine(in: bytes, limit: limits.head - trailerBytes, else: .headTooLarge) else {
                    return closeGap(in: &bytes)
                }
                trailerBytes += line.count + 2
                if line.isEmpty { return read }
                // Trailers are checked, so that nothing hides in them, and otherwise ignored.
                _ = try HeadParser.split(line, of: bytes.span)
            }
        }
    }

    /// Removes the size lines already read, so that a body in small chunks takes no more memory than its data.
    private mutating func closeGap(in bytes: inout [UInt8]) -> Int? {
        if read > end {
            bytes.removeSubrange(end..<read)
            read = end
        }
        return nil
    }

    private mutating func nextLine(
        in bytes: [UInt8], limit: Int, else refusal: Refusal
    ) throws(Refusal) -> Range<Int>? {
        let span = bytes.span
        guard let lineFeed = span.firstIndex(of: .lineFeed, in: read..<bytes.count) else {
            guard bytes.count - read <= limit else { throw refusal }
            return nil
        }
        guard lineFeed - read <= limit else { throw refusal }
        guard lineFeed > read, bytes[lineFeed - 1] == .carriageReturn else { throw .bareLineFeed }
        defer { read = lineFeed + 1 }
        return read..<(lineFeed - 1)
    }

    /// `1*HEXDIG`, then nothing or extensions, which are ignored: blanks and tabs may precede their `;`, but nothing else.
    private static func size(
        _ line: Range<Int>, of bytes: Span<UInt8>
    ) throws(Refusal) -> (size: Int, digits: Int) {
        var size = 0
        var index = line.lowerBound
        while index < line.upperBound, let digit = ByteClass.hexValue(bytes[index]) {
            // More digits than any size needs, leading zeros included.
            guard index - line.lowerBound < 8 else { throw .malformedChunkSize }
            size = size << 4 | Int(digit)
            index += 1
        }
        guard index > line.lowerBound else { throw .malformedChunkSize }
        let digits = index - line.lowerBound
        guard index < line.upperBound else { return (size, digits) }
        let rest = bytes.trimmed(ByteRange(index, line.upperBound))
        guard !rest.isEmpty, bytes[Int(rest.start)] == UInt8(ascii: ";"),
            bytes.all(rest.indices, in: ByteClass.fieldValue)
        else { throw .malformedChunkSize }
        return (size, digits)
    }
}
