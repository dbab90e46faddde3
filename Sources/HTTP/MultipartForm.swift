/// `multipart/form-data` (RFC 7578) as PHP reads it: lines end with CR LF or LF, values are raw, parts with a file name
/// are files and not fields.
package struct MultipartForm {
    private let delimiter: [UInt8]
    private let end: Int
    private var position: Int

    /// - Parameters:
    ///   - range: The body.
    ///   - boundary: As given in the Content-Type, without the two hyphens.
    package init(in range: ByteRange, boundary: [UInt8]) {
        delimiter = Array("--".utf8) + boundary
        position = Int(range.start)
        end = Int(range.end)
    }

    /// The next field in order, nil after the last.
    ///
    /// A part that the body's end cuts off is no field.
    package mutating func nextField(of bytes: Span<UInt8>) -> (name: [UInt8], value: ByteRange)? {
        while skipToDelimiterLine(of: bytes) {
            let disposition = readHeaders(of: bytes)
            guard let value = readValue(of: bytes) else { return nil }
            guard let disposition else { continue }
            let (name, isFile) = Self.parameters(of: disposition, in: bytes)
            if let name, !isFile { return (name, value) }
        }
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

    /// Reads a part's headers up to the empty line and returns the value of Content-Disposition.
    private mutating func readHeaders(of bytes: Span<UInt8>) -> ByteRange? {
        var disposition: ByteRange?
        var continues = false
        while let line = nextLine(of: bytes), !line.isEmpty {
            let first = bytes[Int(line.start)]
            if first == .space || first == .tab {
                // A folded header: its line end counts as the white space it stands for.
                if continues { disposition?.end = line.end }
                continue
            }
            continues = false
            guard let colon = bytes.firstIndex(of: UInt8(ascii: ":"), in: line.indices) else { continue }
            if bytes.equalsIgnoringCase(ByteRange(Int(line.start), colon), Names.disposition) {
                disposition = ByteRange(colon + 1, Int(line.end))
                continues = true
            }
        }
        return disposition
    }

    /// The bytes up to the line end before the next delimiter; nil when there is none.
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

    /// The name of a Content-Disposition, and whether it has a file name, even an empty one.
    private static func parameters(
        of disposition: ByteRange, in bytes: Span<UInt8>
    ) -> (name: [UInt8]?, isFile: Bool) {
        var name: [UInt8]?
        var isFile = false
        for parameter in segments(of: disposition, in: bytes).dropFirst() {
            guard let equals = bytes.firstIndex(of: UInt8(ascii: "="), in: parameter.indices) else { continue }
            let key = bytes.trimmed(ByteRange(Int(parameter.start), equals))
            let value = ByteRange(equals + 1, Int(parameter.end))
            if bytes.equalsIgnoringCase(key, Names.name) { name = unquoted(value, in: bytes) }
            if bytes.equalsIgnoringCase(key, Names.filename) { isFile = true }
        }
        return (name, isFile)
    }

    /// Splits at `;` outside double and single quotes; a backslash keeps the next byte from ending a quote.
    private static func segments(of range: ByteRange, in bytes: Span<UInt8>) -> [ByteRange] {
        var segments: [ByteRange] = []
        var start = Int(range.start)
        var quote: UInt8?
        var index = start
        while index < Int(range.end) {
            let byte = bytes[index]
            if let open = quote {
                if byte == UInt8(ascii: "\\") { index += 1 } else if byte == open { quote = nil }
            } else if byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "'") {
                quote = byte
            } else if byte == UInt8(ascii: ";") {
                segments.append(ByteRange(start, index))
                start = index + 1
            }
            index += 1
        }
        segments.append(ByteRange(start, Int(range.end)))
        return segments
    }

    /// A parameter's value without its quotes and their escapes; a bare one ends at white space.
    private static func unquoted(_ range: ByteRange, in bytes: Span<UInt8>) -> [UInt8] {
        let value = bytes.trimmed(range)
        guard !value.isEmpty else { return [] }
        let quote = bytes[Int(value.start)]
        var text: [UInt8] = []
        guard quote == UInt8(ascii: "\"") || quote == UInt8(ascii: "'") else {
            for index in value.indices {
                if isSpace(bytes[index]) { break }
                text.append(bytes[index])
            }
            return text
        }
        var index = Int(value.start) + 1
        while index < Int(value.end) && bytes[index] != quote {
            let isEscape = bytes[index] == UInt8(ascii: "\\") && index + 1 < Int(value.end)
            if isEscape && (bytes[index + 1] == quote || bytes[index + 1] == UInt8(ascii: "\\")) { index += 1 }
            text.append(bytes[index])
            index += 1
        }
        return text
    }

    private static func isSpace(_ byte: UInt8) -> Bool {
        byte == .space || (0x09...0x0d).contains(byte)
    }

    private enum Names {
        static let disposition: StaticString = "content-disposition"
        static let name: StaticString = "name"
        static let filename: StaticString = "filename"
    }
}
