/// `multipart/form-data` (RFC 7578) as PHP reads it: lines end with CR LF or LF, values are raw, parts with a file name
/// are files and not fields.
package struct MultipartForm {
    private let delimiter: [UInt8]
    private let end: Int
    private var position: Int
    /// How many more fields and parts are read: PHP's `max_input_vars`, and that plus its `max_file_uploads`.
    private var (fieldsLeft, partsLeft) = (1_000, 1_020)

    /// - Parameters:
    ///   - range: The body.
    ///   - boundary: As given in the Content-Type, without the two hyphens.
    package init(in range: ByteRange, boundary: [UInt8]) {
        delimiter = Array("--".utf8) + boundary
        position = Int(range.start)
        end = Int(range.end)
    }

    /// The next field in order; nil after the last.
    ///
    /// Ignores a part that the body's end cuts off, and all that follows the 1,000th field or the 1,020th part, files
    /// included.
    package mutating func nextField(of bytes: Span<UInt8>) -> (name: [UInt8], value: ByteRange)? {
        while skipToDelimiterLine(of: bytes) {
            guard let header = readHeaders(of: bytes) else { continue }
            partsLeft -= 1
            guard partsLeft >= 0 else { break }
            let disposition = ContentDisposition(header)
            if let fileName = disposition.fileName {
                // If the file name is empty, PHP does not skip the content of the part.
                if !fileName.isEmpty { _ = readValue(of: bytes) }
            } else if let name = disposition.name {
                fieldsLeft -= 1
                guard fieldsLeft >= 0 else { break }
                return readValue(of: bytes).map { (name, $0) }
            } else {
                // PHP reads no further than such a part.
                break
            }
        }
        position = end
        return nil
    }

    /// The next line without its line end; nil at the end of the body.
    private mutating func nextLine(of bytes: Span<UInt8>) -> ByteRange? {
        guard position < end else { return nil }
        let start = position
        let lineFeed = bytes.firstIndex(of: .lineFeed, in: start..<end)
        position = lineFeed.map { $0 + 1 } ?? end
        var lineEnd = lineFeed ?? end
        if lineFeed != nil, lineEnd > start, bytes[lineEnd - 1] == .carriageReturn { lineEnd -= 1 }
        return ByteRange(start, lineEnd)
    }

    private mutating func skipToDelimiterLine(of bytes: Span<UInt8>) -> Bool {
        while let line = nextLine(of: bytes) {
            if bytes.equals(line, delimiter) { return true }
        }
        return false
    }

    /// Reads a part's headers up to the empty line and returns the value of the first Content-Disposition.
    private mutating func readHeaders(of bytes: Span<UInt8>) -> [UInt8]? {
        var disposition: [UInt8]?
        var continues = false
        while let line = nextLine(of: bytes), !line.isEmpty {
            let isFolded = bytes[Int(line.start)].isSpace
            guard !isFolded, let colon = bytes.firstIndex(of: UInt8(ascii: ":"), in: line.indices) else {
                // It belongs to the header before it, unchanged and without a line end.
                if continues { disposition?.append(line, in: bytes) }
                continue
            }
            let name = ByteRange(Int(line.start), colon)
            continues = disposition == nil && bytes.equalsIgnoringCase(name, Names.disposition)
            if continues { disposition = [UInt8](ByteRange(colon + 1, Int(line.end)), in: bytes) }
        }
        return disposition
    }

    /// The bytes up to the line end before the next delimiter; nil if there is none.
    private mutating func readValue(of bytes: Span<UInt8>) -> ByteRange? {
        let start = position
        var search = start
        while let lineFeed = bytes.firstIndex(of: .lineFeed, in: search..<end) {
            let next = lineFeed + 1
            if end - next >= delimiter.count, bytes.equals(ByteRange(next, next + delimiter.count), delimiter) {
                position = next
                let hasReturn = lineFeed > start && bytes[lineFeed - 1] == .carriageReturn
                return ByteRange(start, hasReturn ? lineFeed - 1 : lineFeed)
            }
            search = next
        }
        position = end
        return nil
    }

    private enum Names {
        static let disposition: StaticString = "content-disposition"
    }
}
