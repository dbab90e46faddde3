/// Bytes in, requests out: the receive buffer of a connection, and how far it has been parsed.
///
/// Append what arrives to `bytes`, call `next` until it needs more, and `finishRequest` after each request. Uses no sockets
/// and no clock; reads each byte of a head once, however slowly it arrives.
package struct RequestReader {
    /// What to do next.
    package enum Step {
        /// Receive more.
        case needsMore(Part)
        /// Send `100 Continue`, then call `next` again.
        case sendContinue
        /// Answer `request`, then call `finishRequest`.
        case request
        /// Answer this and close.
        case refused(Refusal)
    }

    /// What the reader waits for, which decides the deadline.
    package enum Part: Sendable {
        /// The first byte of a request.
        case start
        case head
        case body
    }

    private enum State {
        case start
        case requestLine
        case fields
        case body(end: Int)
        case chunked(ChunkedBody)
        case complete(bodyEnd: Int, wireEnd: Int)
    }

    /// The buffer, in which pipelined requests follow one another.
    package var bytes: [UInt8] = []

    /// Must be changed between two requests only.
    package var limits: RequestLimits {
        // Fields within the former limits may exceed these.
        didSet { cachedSection = nil }
    }
    private var state = State.start
    private var parser = HeadParser()
    /// Where the current request begins in `bytes`.
    private var start = 0
    /// Where the current line begins.
    private var lineStart = 0
    /// The bytes before this index have been searched for a line end.
    private var searched = 0
    private var skippedEmptyLine = false
    private var sentContinue = false
    /// Where the current request's fields begin.
    private var fieldsStart = 0
    /// The fields of an earlier request, to compare with; nil if there are none.
    private(set) var cachedSection: CachedHeaderSection?
    /// Consecutive heads whose fields differed from those before, including the connection's first.
    private var differingHeads = 0

    /// After this many differing heads, as proxies send them, fields are no longer compared.
    private static let mostDifferingHeads = 8
    /// The most bytes of fields that are kept, as every waiting connection keeps them.
    private static let longestKeptFields = 1 << 10

    package init(limits: RequestLimits) {
        self.limits = limits
    }

    /// True if nothing of a request has been parsed yet.
    package var isBetweenRequests: Bool {
        if case .start = state { true } else { false }
    }

    /// True between two requests if no byte of the next one has arrived.
    package var isEmpty: Bool { start == bytes.count }

    /// Removes and returns the buffer; nil if it has contents, or no capacity.
    package mutating func takeEmptyBuffer() -> [UInt8]? {
        guard isEmpty, bytes.capacity > 0 else { return nil }
        var buffer: [UInt8] = []
        swap(&buffer, &bytes)
        return buffer
    }

    /// Empties the buffer; nothing more is parsed.
    package mutating func dropAll() {
        bytes.removeAll(keepingCapacity: true)
        start = 0
    }

    /// The current request's bytes, which a `Request`'s ranges refer to.
    package var requestBytes: Span<UInt8> {
        @_lifetime(borrow self) get { bytes.span.extracting(start..<bytes.count) }
    }

    /// The request at hand: from when `next` has returned `request` until `finishRequest`.
    package var request: Request {
        guard case .complete(let bodyEnd, _) = state else { preconditionFailure("no whole request has been read") }
        return Request(head: parser.head, body: ByteRange(parser.head.length, bodyEnd - start))
    }

    /// Bytes of the body of the request at hand; 0 if there is no request.
    package var bodyCount: Int {
        if case .complete(let bodyEnd, _) = state { bodyEnd - start - parser.head.length } else { 0 }
    }

    /// Continues with what is in the buffer.
    package mutating func next() -> Step {
        do {
            return try advance()
        } catch {
            return .refused(error)
        }
    }

    /// Drops the request at hand.
    package mutating func finishRequest() {
        guard case .complete(_, let wireEnd) = state else {
            preconditionFailure("a request is finished after it was read, once")
        }
        begin(at: wireEnd)
        parser = HeadParser()
        skippedEmptyLine = false
        sentContinue = false
        state = .start
    }

    /// Whether the first request begins as a TLS connection does (RFC 8446, section 5.1: a record of type 22).
    package var beginsLikeTLS: Bool { differingHeads == 0 && start < bytes.count && bytes[start] == 22 }

    /// Whether bytes of another request follow the one at hand, or the one that was just finished.
    package var hasFurtherBytes: Bool {
        switch state {
        case .complete(_, let wireEnd): wireEnd < bytes.count
        case .start: !isEmpty
        default: false
        }
    }

    /// Sets where the current request begins; empties the buffer if all of it was used.
    private mutating func begin(at index: Int) {
        start = index
        if isEmpty {
            bytes.removeAll(keepingCapacity: true)
            start = 0
        }
        lineStart = start
        searched = start
    }

    /// Makes room at the buffer's end and returns how much there is for the next read.
    ///
    /// The buffer doubles as data arrives, whatever length was announced: only bytes that were sent take memory.
    package mutating func makeRoom() -> Int {
        compact()
        let room = bytes.capacity - bytes.count
        return room >= min(max(expectedBytes, 1), Self.leastRoom) ? room : max(bytes.capacity, Self.leastRoom)
    }

    /// Reading into less room than this would cost more calls than growing.
    private static let leastRoom = 4 << 10

    /// How many bytes of the current body are still to come, if that is known; otherwise `Int.max`.
    private var expectedBytes: Int {
        if case .body(let end) = state { return end - bytes.count }
        return .max
    }

    /// Releases the unused part of the buffer if that is most of it.
    ///
    /// Keeps room that the buffer has just gained by doubling: otherwise a body that arrives byte by byte would be copied with
    /// each byte.
    package mutating func releaseRoom() {
        guard bytes.count - start <= bytes.capacity / 4 else { return }
        compact()
        var smaller: [UInt8] = []
        smaller.reserveCapacity(bytes.count)
        smaller.append(contentsOf: bytes)
        bytes = smaller
    }

    /// Moves the unread bytes to the front of the buffer.
    private mutating func compact() {
        guard start > 0 else { return }
        bytes.removeSubrange(0..<start)
        lineStart -= start
        searched -= start
        fieldsStart -= start
        switch state {
        case .start, .requestLine, .fields: break
        case .body(let end): state = .body(end: end - start)
        case .complete(let bodyEnd, let wireEnd): state = .complete(bodyEnd: bodyEnd - start, wireEnd: wireEnd - start)
        case .chunked(var chunks):
            chunks.moveForward(by: start)
            state = .chunked(chunks)
        }
        start = 0
    }

    private mutating func advance() throws(Refusal) -> Step {
        while true {
            switch state {
            case .start:
                guard !isEmpty else { return .needsMore(.start) }
                guard try skipEmptyLine() else { return .needsMore(.start) }
                state = .requestLine
            case .requestLine:
                guard let line = try nextLine(limit: limits.head, from: start, else: .targetTooLong)
                else {
                    return .needsMore(.head)
                }
                try parser.readRequestLine(line, of: bytes, from: start)
                fieldsStart = lineStart
                state = .fields
                if takeCachedFields() { try finishHead() }
            case .fields:
                guard let line = try nextLine(limit: limits.head, from: start, else: .headTooLarge) else {
                    return .needsMore(.head)
                }
                if line.isEmpty {
                    parser.finishFields(of: bytes, from: start)
                    cacheFields()
                    try finishHead()
                } else {
                    try parser.readField(line, of: bytes, from: start, limits: limits)
                }
            case .body(let end):
                guard bytes.count >= end else { return waitForBody() }
                state = .complete(bodyEnd: end, wireEnd: end)
            case .chunked(var chunks):
                // Moved out of the state while it decodes, so that the buffer is not shared and copied.
                let wireEnd = try chunks.decode(&bytes, limits: limits)
                state = .chunked(chunks)
                guard let wireEnd else { return waitForBody() }
                state = .complete(bodyEnd: chunks.end, wireEnd: wireEnd)
            case .complete:
                return .request
            }
        }
    }

    /// Skips one empty line before a request (RFC 9112, section 2.2).
    ///
    /// - Returns: False if no byte of the request itself has arrived.
    private mutating func skipEmptyLine() throws(Refusal) -> Bool {
        guard bytes[start] == .carriageReturn, !skippedEmptyLine else { return true }
        guard bytes.count > start + 1 else { return false }
        guard bytes[start + 1] == .lineFeed else { throw .bareCarriageReturn }
        skippedEmptyLine = true
        begin(at: start + 2)
        return !isEmpty
    }

    /// The next whole line of the head without its line end, from the request's first byte; nil if it has not arrived yet.
    ///
    /// - Parameters:
    ///   - limit: How many bytes there may be from `origin` to the line's end, CR LF included.
    ///   - origin: The index in the buffer from which bytes are counted.
    ///   - refusal: Thrown beyond the limit.
    private mutating func nextLine(
        limit: Int, from origin: Int, else refusal: Refusal
    ) throws(Refusal) -> Range<Int>? {
        guard let lineFeed = bytes.span.firstIndex(of: .lineFeed, in: searched..<bytes.count) else {
            searched = bytes.count
            // Without the line feed, which is still to come.
            guard bytes.count - origin < limit else { throw refusal }
            return nil
        }
        searched = lineFeed + 1
        // Checked first: if the line feed comes in a later packet, the line is refused for its length before that.
        guard lineFeed + 1 - origin <= limit else { throw refusal }
        guard lineFeed > lineStart, bytes[lineFeed - 1] == .carriageReturn else { throw .bareLineFeed }
        defer { lineStart = lineFeed + 1 }
        return (lineStart - start)..<(lineFeed - 1 - start)
    }

    /// Takes over the fields of an earlier request if the current one has the same lines.
    private mutating func takeCachedFields() -> Bool {
        guard let cachedSection,
            let end = cachedSection.end(in: requestBytes, from: lineStart - start, limit: limits.head),
            parser.takeFields(of: cachedSection.parser)
        else { return false }
        differingHeads = 1
        lineStart = start + end
        searched = lineStart
        return true
    }

    /// Keeps the fields that were just read, to compare them with those of the next request.
    private mutating func cacheFields() {
        cachedSection = nil
        guard differingHeads < Self.mostDifferingHeads else { return }
        differingHeads += 1
        // Many connections have only one request.
        guard differingHeads > 1, lineStart - fieldsStart <= Self.longestKeptFields else { return }
        cachedSection = CachedHeaderSection(bytes[fieldsStart..<lineStart], readBy: parser, from: fieldsStart - start)
    }

    private mutating func finishHead() throws(Refusal) {
        try parser.finish(length: lineStart - start, limits: limits)
        switch parser.head.framing {
        case .none: state = .complete(bodyEnd: lineStart, wireEnd: lineStart)
        case .length(let length): state = .body(end: lineStart + length)
        case .chunked: state = .chunked(ChunkedBody(at: lineStart))
        }
    }

    private mutating func waitForBody() -> Step {
        // A client that already sends its body does not wait for 100 Continue.
        if parser.head.expectsContinue && !sentContinue && bytes.count == lineStart {
            sentContinue = true
            return .sendContinue
        }
        return .needsMore(.body)
    }

    /// The head of the current request as far as it was parsed, for the answer to a refusal.
    package var partialHead: RequestHead { parser.head }
}

/// How large the parts of a request may be.
///
/// All sizes are in bytes.
package struct RequestLimits: Sendable {
    /// The whole head; beyond it the answer is 414 in the request line, and otherwise 431.
    package var head: Int
    /// How many header lines; beyond it the answer is 431.
    package var fieldCount: Int
    /// The body after decoding of chunks; beyond it the answer is 413.
    package var body: Int

    package init(head: Int = 16 << 10, fieldCount: Int = 100, body: Int = 1 << 20) {
        self.head = head
        self.fieldCount = fieldCount
        self.body = body
    }
}
