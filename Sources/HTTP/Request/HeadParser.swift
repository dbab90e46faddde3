/// Parses a request head line by line, each line once, as soon as it has arrived.
///
/// Framing is decided here and nowhere else. Offsets count from the request's first byte.
struct HeadParser {
    private(set) var head = RequestHead()
    private var hasAbsoluteTarget = false

    // MARK: - Request line

    /// Reads `method SP target SP version` (RFC 9112, section 3).
    ///
    /// - Parameters:
    ///   - line: The line without its line end, from the request's first byte.
    ///   - buffer: The receive buffer.
    ///   - start: Where the request begins in it.
    mutating func readRequestLine(_ line: Range<Int>, of buffer: [UInt8], from start: Int) throws(Refusal) {
        let bytes = buffer.span.extracting(start..<buffer.count)
        guard let methodEnd = bytes.firstIndex(of: .space, in: line), methodEnd > line.lowerBound else {
            throw .malformedRequestLine
        }
        guard bytes.all(line.lowerBound..<methodEnd, in: ByteClass.token) else { throw .malformedMethod }
        let targetStart = methodEnd + 1
        guard let targetEnd = bytes.firstIndex(of: .space, in: targetStart..<line.upperBound), targetEnd > targetStart
        else { throw .malformedRequestLine }
        head.methodName = ByteRange(line.lowerBound, methodEnd)
        head.method = Method(head.methodName, in: bytes)
        head.target = ByteRange(targetStart, targetEnd)
        // The version first, so that a request of HTTP/2 or 0.9 is answered as such, whatever its target looks like.
        try readVersion((targetEnd + 1)..<line.upperBound, of: bytes)
        if head.method == .connect { throw .connectMethod }
        try readTarget(targetStart..<targetEnd, of: bytes)
    }

    /// `HTTP/1.0` or `HTTP/1.` and another digit.
    private mutating func readVersion(_ range: Range<Int>, of bytes: Span<UInt8>) throws(Refusal) {
        let start = range.lowerBound
        guard range.count == 8, bytes.equals(ByteRange(start, start + 5), "HTTP/"),
            ByteClass.isDigit(bytes[start + 5]), bytes[start + 6] == UInt8(ascii: "."),
            ByteClass.isDigit(bytes[start + 7])
        else { throw .malformedVersion }
        guard bytes[start + 5] == UInt8(ascii: "1") else { throw .versionNotSupported }
        head.minorVersion = bytes[start + 7] == UInt8(ascii: "0") ? 0 : 1
    }

    /// Origin form, absolute form, or `*` for OPTIONS (RFC 9112, section 3.2).
    private mutating func readTarget(_ range: Range<Int>, of bytes: Span<UInt8>) throws(Refusal) {
        guard bytes.all(range, in: ByteClass.target) else { throw .malformedTarget }
        var pathStart = range.lowerBound
        if bytes[pathStart] != UInt8(ascii: "/") {
            if range.count == 1, bytes[pathStart] == UInt8(ascii: "*"), head.method == .options {
                head.path = ByteRange(range.lowerBound, range.upperBound)
                return
            }
            pathStart = try readAuthority(range, of: bytes)
        }
        let mark = bytes.firstIndex(of: UInt8(ascii: "?"), in: pathStart..<range.upperBound)
        head.path = ByteRange(pathStart, mark ?? range.upperBound)
        if let mark { head.query = ByteRange(mark + 1, range.upperBound) }
    }

    /// Reads the authority of an absolute target and returns where the path begins.
    private mutating func readAuthority(_ range: Range<Int>, of bytes: Span<UInt8>) throws(Refusal) -> Int {
        let schemes: [StaticString] = ["http://", "https://"]
        guard let scheme = schemes.first(where: { bytes.hasPrefix($0, in: range) }) else { throw .malformedTarget }
        let start = range.lowerBound + scheme.utf8CodeUnitCount
        var end = start
        while end < range.upperBound && bytes[end] != UInt8(ascii: "/") && bytes[end] != UInt8(ascii: "?") { end += 1 }
        let authority = ByteRange(start, end)
        guard !authority.isEmpty, bytes.isAuthority(authority) else { throw .malformedHost }
        head.authority = authority
        hasAbsoluteTarget = true
        return end
    }

    // MARK: - Fields

    /// Reads one header line; the parameters are those of `readRequestLine`.
    mutating func readField(
        _ line: Range<Int>, of buffer: [UInt8], from start: Int, limits: RequestLimits
    ) throws(Refusal) {
        let bytes = buffer.span.extracting(start..<buffer.count)
        head.fields.count += 1
        guard head.fields.count <= limits.fieldCount else { throw .tooManyFields }
        let (name, value) = try Self.split(line, of: bytes)
        head.length = line.upperBound + 2
        switch HeaderField(name, in: bytes) {
        case nil: break
        case .host: try readHost(value, of: bytes)
        case .connection: readConnection(value, of: bytes)
        case .expect: try readExpect(value, of: bytes)
        case .contentLength: try readContentLength(value, of: bytes)
        case .contentType:
            try once(.contentType, else: .repeatedContentType)
            head.fields.contentType = value
        case .transferEncoding: try readTransferEncoding(value, of: bytes)
        case .authorization: head.fields.authorization.add(value)
        case .ifMatch, .ifNoneMatch: head.fields.hasPreconditions = true
        case .origin: head.fields.mentionsPage = true
        case .fetchSite: if RequestHead.isOtherSite(value, in: bytes) { head.fields.mentionsPage = true }
        case .forwardedFor:
            head.fields.forwarding.addresses.add(value)
            head.fields.forwarding.isPresent = true
        case .forwardedProto:
            head.fields.forwarding.protos.add(value)
            head.fields.forwarding.isPresent = true
        case .forwarded, .realAddress, .otherForwarded, .via: head.fields.forwarding.isPresent = true
        case .requestID: head.fields.forwarding.requestID = value
        }
    }

    /// Takes over the fields of another head, which has the same lines at the same place.
    ///
    /// - Parameter other: The parser that has read them, before its `finish`.
    /// - Returns: False if the request line gives them another meaning.
    mutating func takeFields(of other: HeadParser) -> Bool {
        guard !hasAbsoluteTarget && !other.hasAbsoluteTarget, head.minorVersion == other.head.minorVersion else {
            return false
        }
        head.fields = other.head.fields
        head.authority = head.fields.host
        return true
    }

    /// Splits a header or trailer line and checks its characters (RFC 9112, section 5).
    static func split(
        _ line: Range<Int>, of bytes: Span<UInt8>
    ) throws(Refusal) -> (name: ByteRange, value: ByteRange) {
        let text = bytes.extracting(line)
        if text[0] == .space || text[0] == .tab { throw .foldedField }
        var colon = 0
        while colon < text.count && ByteClass.token.contains(text[colon]) { colon += 1 }
        guard colon > 0, colon < text.count, text[colon] == UInt8(ascii: ":") else { throw .malformedFieldName }
        guard text.all((colon + 1)..<text.count, in: ByteClass.fieldValue) else {
            let isBare = text.firstIndex(of: .carriageReturn, in: (colon + 1)..<text.count) != nil
            throw isBare ? .bareCarriageReturn : .malformedFieldValue
        }
        let (start, end) = (line.lowerBound, line.upperBound)
        return (ByteRange(start, start + colon), bytes.trimmed(ByteRange(start + colon + 1, end)))
    }

    private mutating func once(_ field: HeaderFields.Singles, else refusal: Refusal) throws(Refusal) {
        guard head.fields.singles.insert(field).inserted else { throw refusal }
    }

    private mutating func readHost(_ value: ByteRange, of bytes: Span<UInt8>) throws(Refusal) {
        try once(.host, else: .repeatedHost)
        guard value.isEmpty || bytes.isAuthority(value) else { throw .malformedHost }
        head.fields.host = value
        // An absolute target's own authority counts (RFC 9112, section 3.2.2).
        if !hasAbsoluteTarget { head.authority = value }
    }

    private mutating func readExpect(_ value: ByteRange, of bytes: Span<UInt8>) throws(Refusal) {
        // The list may be empty (RFC 9110, section 10.1.1). PHP's Guzzle sends it so that libcurl does not wait for 100 Continue.
        // The only expectation that there is fits many times.
        guard value.count <= 128 else { throw .unknownExpectation }
        var isKnown = true
        bytes.forEachElement(of: value, least: 1) { expectation in
            head.fields.expectsContinue = true
            if !bytes.equalsIgnoringCase(expectation, "100-continue") { isKnown = false }
        }
        if !isKnown { throw .unknownExpectation }
    }

    private mutating func readConnection(_ value: ByteRange, of bytes: Span<UInt8>) {
        // No honest client has so many options. A server may close whenever it likes, so a longer list need not be read.
        guard value.count <= 128 else {
            head.fields.saysClose = true
            return
        }
        bytes.forEachElement(of: value, least: 5) { option in
            if bytes.equalsIgnoringCase(option, "close") { head.fields.saysClose = true }
            if bytes.equalsIgnoringCase(option, "keep-alive") { head.fields.saysKeepAlive = true }
        }
    }

    private mutating func readContentLength(_ value: ByteRange, of bytes: Span<UInt8>) throws(Refusal) {
        try once(.contentLength, else: .repeatedContentLength)
        guard !value.isEmpty else { throw .malformedContentLength }
        var length = 0
        for index in value.indices {
            guard ByteClass.isDigit(bytes[index]) else { throw .malformedContentLength }
            // Saturating: any number beyond the limit is too large, however many digits it has.
            let digit = Int(bytes[index] - UInt8(ascii: "0"))
            length = length >= Int.max / 16 ? Int.max / 16 : length * 10 + digit
        }
        head.fields.contentLength = length
    }

    private mutating func readTransferEncoding(_ value: ByteRange, of bytes: Span<UInt8>) throws(Refusal) {
        if head.minorVersion == 0 { throw .transferEncodingInOldVersion }
        try once(.transferEncoding, else: .repeatedTransferEncoding)
        // No client writes a longer list that means only this.
        guard value.count <= 128 else { throw .unknownTransferCoding }
        var (count, chunkedCount, isLast) = (0, 0, false)
        bytes.forEachElement(of: value, least: 1) { coding in
            count += 1
            isLast = bytes.equalsIgnoringCase(coding, "chunked")
            if isLast { chunkedCount += 1 }
        }
        guard isLast, chunkedCount == 1 else { throw .chunkedNotLast }
        guard count == 1 else { throw .unknownTransferCoding }
    }

    // MARK: - End

    /// Decides what depends on several fields; the parameters are those of `readRequestLine`.
    mutating func finishFields(of buffer: [UInt8], from start: Int) {
        head.fields.hasForeignName = buffer.span.extracting(start..<buffer.count).hasForeignName(head.authority)
    }

    /// Decides what follows the head.
    ///
    /// - Parameter length: The bytes of the head with the empty line.
    mutating func finish(length: Int, limits: RequestLimits) throws(Refusal) {
        head.length = length
        let fields = head.fields
        if head.minorVersion > 0 && !fields.singles.contains(.host) { throw .missingHost }
        if fields.singles.contains(.transferEncoding) {
            if fields.singles.contains(.contentLength) { throw .lengthAndTransferEncoding }
            head.framing = .chunked
        } else if fields.contentLength > 0 {
            guard fields.contentLength <= limits.body else { throw .bodyTooLarge }
            head.framing = .length(fields.contentLength)
        }
        // HTTP/1.0 knows no 100 (RFC 9110, section 10.1.1).
        head.expectsContinue = fields.expectsContinue && head.minorVersion > 0
        head.keepsAlive = !fields.saysClose && (head.minorVersion > 0 || fields.saysKeepAlive)
    }
}

/// The header section of an earlier request on a connection, and what it said.
///
/// A client that keeps its connection usually sends the same lines with each request. Lines that are equal and lie at the same
/// place need not be parsed again, as the ranges of their values are the same.
final class CachedHeaderSection: Sendable {
    /// The lines with the empty one that ends them.
    private let lines: [UInt8]
    /// The parser that has read them.
    let parser: HeadParser
    /// Where they began, from the request's first byte.
    private let start: Int

    /// - Parameters:
    ///   - lines: The lines with the empty one that ends them.
    ///   - parser: The parser that has read them.
    ///   - start: Where they began, from the request's first byte.
    init(_ lines: ArraySlice<UInt8>, readBy parser: HeadParser, from start: Int) {
        self.lines = [UInt8](lines)
        self.parser = parser
        self.start = start
    }

    /// Where the same lines end in another request; nil if its lines differ, lie at another place or have not all arrived.
    ///
    /// - Parameters:
    ///   - request: The request's bytes, as far as they have arrived.
    ///   - start: Where the lines begin in these bytes.
    ///   - limit: The most bytes that a head may have.
    func end(in request: Span<UInt8>, from start: Int, limit: Int) -> Int? {
        let end = start + lines.count
        guard start == self.start, end <= limit, end <= request.count else { return nil }
        return request.equals(ByteRange(start, end), lines) ? end : nil
    }
}
