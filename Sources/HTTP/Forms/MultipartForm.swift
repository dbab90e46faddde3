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
                if continues { for index in line.indices { disposition?.append(bytes[index]) } }
                continue
            }
            let name = ByteRange(Int(line.start), colon)
            continues = disposition == nil && bytes.equalsIgnoringCase(name, "content-disposition")
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
            if end - next >= delimiter.count, bytes[next] == delimiter[0],
                bytes.equals(ByteRange(next, next + delimiter.count), delimiter)
            {
                position = next
                let hasReturn = lineFeed > start && bytes[lineFeed - 1] == .carriageReturn
                return ByteRange(start, hasReturn ? lineFeed - 1 : lineFeed)
            }
            search = next
        }
        position = end
        return nil
    }
}

/// The parameters of a part's Content-Disposition (RFC 7578, section 4.2) as PHP reads them: the type before them may be
/// missing, and of several parameters with one name the last counts.
struct ContentDisposition {
    /// Nil if the part has none.
    let name: [UInt8]?
    /// Nil if the part is not a file.
    let fileName: [UInt8]?

    init(_ value: [UInt8]) {
        let bytes = value.span
        var (name, fileName): (Range<Int>?, Range<Int>?)
        var start = 0
        while start < bytes.count {
            let end = Self.wordEnd(in: start..<bytes.count, before: UInt8(ascii: ";"), of: bytes)
            Self.readParameter(start..<end, of: bytes, &name, &fileName)
            start = end + 1
        }
        self.name = name.map { Self.unquoted($0, of: bytes) }
        self.fileName = fileName.map { Self.unquoted($0, of: bytes) }
    }

    /// Notes the value of a parameter that is one of the two.
    private static func readParameter(
        _ range: Range<Int>, of bytes: Span<UInt8>, _ name: inout Range<Int>?, _ fileName: inout Range<Int>?
    ) {
        let start = skipSpace(in: range, of: bytes)
        let keyEnd = wordEnd(in: start..<range.upperBound, before: UInt8(ascii: "="), of: bytes)
        var valueStart = keyEnd
        while valueStart < range.upperBound && bytes[valueStart] == UInt8(ascii: "=") { valueStart += 1 }
        guard valueStart > keyEnd else { return }
        // White space after the key belongs to it and makes it another key.
        let key = ByteRange(start, keyEnd)
        let value = valueStart..<range.upperBound
        if bytes.equalsIgnoringCase(key, "name") { name = value }
        if bytes.equalsIgnoringCase(key, "filename") { fileName = value }
    }

    /// The position of a separator outside double and single quotes, otherwise the range's end.
    ///
    /// A backslash right before the closing quote keeps it from closing, even if another backslash precedes it.
    private static func wordEnd(in range: Range<Int>, before separator: UInt8, of bytes: Span<UInt8>) -> Int {
        var quote: UInt8?
        var index = range.lowerBound
        while index < range.upperBound {
            let byte = bytes[index]
            if byte == quote {
                quote = nil
            } else if quote != nil {
                let isEscape = byte == UInt8(ascii: "\\") && index + 1 < range.upperBound
                if isEscape && bytes[index + 1] == quote { index += 1 }
            } else if byte == separator {
                return index
            } else if isQuote(byte) {
                quote = byte
            }
            index += 1
        }
        return range.upperBound
    }

    /// A value without its quotes and their escapes; a bare one ends at white space.
    private static func unquoted(_ range: Range<Int>, of bytes: Span<UInt8>) -> [UInt8] {
        var text: [UInt8] = []
        var index = skipSpace(in: range, of: bytes)
        guard index < range.upperBound else { return text }
        let quote = isQuote(bytes[index]) ? bytes[index] : nil
        if quote != nil { index += 1 }
        while index < range.upperBound {
            let isEnd = quote == nil ? bytes[index].isSpace : bytes[index] == quote
            if isEnd { break }
            let isEscape = bytes[index] == UInt8(ascii: "\\") && index + 1 < range.upperBound
            if isEscape && (bytes[index + 1] == quote || bytes[index + 1] == UInt8(ascii: "\\")) { index += 1 }
            text.append(bytes[index])
            index += 1
        }
        return text
    }

    private static func skipSpace(in range: Range<Int>, of bytes: Span<UInt8>) -> Int {
        var index = range.lowerBound
        while index < range.upperBound && bytes[index].isSpace { index += 1 }
        return index
    }

    private static func isQuote(_ byte: UInt8) -> Bool {
        byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "'")
    }
}

extension UInt8 {
    /// What C's `isspace` takes for white space.
    var isSpace: Bool { self == .space || (0x09...0x0d).contains(self) }
}

/// The kind of body that a request's Content-Type announces.
package enum MediaType: Hashable, Sendable {
    case urlEncodedForm
    /// With the boundary's bytes; nil if it is missing or its quote is not closed.
    case multipartForm(boundary: [UInt8]?)
    case json
    case other

    /// Reads a Content-Type value as PHP does: the type ends at the first `;`, `,` or space, in any case; the boundary is
    /// what follows `boundary` and the next `=`, quoted or up to the next `;` or `,`.
    package init(_ value: ByteRange, of bytes: Span<UInt8>) {
        var typeEnd = Int(value.start)
        while typeEnd < Int(value.end) {
            let byte = bytes[typeEnd]
            if byte == UInt8(ascii: ";") || byte == UInt8(ascii: ",") || byte == .space { break }
            typeEnd += 1
        }
        let type = ByteRange(Int(value.start), typeEnd)
        if bytes.equalsIgnoringCase(type, "application/x-www-form-urlencoded") {
            self = .urlEncodedForm
        } else if bytes.equalsIgnoringCase(type, "multipart/form-data") {
            self = .multipartForm(boundary: Self.boundary(in: value, of: bytes))
        } else if bytes.equalsIgnoringCase(type, "application/json") {
            self = .json
        } else {
            self = .other
        }
    }

    private static func boundary(in value: ByteRange, of bytes: Span<UInt8>) -> [UInt8]? {
        let bytes = bytes.extracting(value.indices)
        let end = bytes.count
        var index = 0
        // The eight letters before the index, in lower case, until they are `boundary`.
        var letters: UInt64 = 0
        while letters != 0x626f_756e_6461_7279 {
            guard index < end else { return nil }
            letters = letters << 8 | UInt64(bytes[index] | 0x20)
            index += 1
        }
        guard let equals = bytes.firstIndex(of: UInt8(ascii: "="), in: index..<end) else { return nil }
        var start = equals + 1
        if start < end && bytes[start] == UInt8(ascii: "\"") {
            start += 1
            guard let quote = bytes.firstIndex(of: UInt8(ascii: "\""), in: start..<end) else { return nil }
            return [UInt8](ByteRange(start, quote), in: bytes)
        }
        var last = start
        while last < end && bytes[last] != UInt8(ascii: ";") && bytes[last] != UInt8(ascii: ",") { last += 1 }
        return [UInt8](ByteRange(start, last), in: bytes)
    }
}
