import HTTP
import TestSupport
import Testing

/// What a reader made of some input: its requests and how it ended.
private struct Reading: Equatable, CustomStringConvertible {
    var requests: [String] = []
    var continues = 0
    var end = ""

    var description: String { "\(requests) \(end)" }
}

/// Feeds input in pieces of the given sizes (the rest at once) and describes all that comes out.
private func read(
    _ input: [UInt8], pieces: [Int] = [], limits: RequestLimits = RequestLimits(), releasesRoom: Bool = false
) -> Reading {
    var reader = RequestReader(limits: limits)
    var reading = Reading()
    var rest = input[...]
    var sizes = pieces[...]
    while true {
        switch reader.next() {
        case .request:
            reading.requests.append(describe(reader.request, in: reader.requestBytes))
            reader.finishRequest()
        case .sendContinue:
            reading.continues += 1
        case .refused(let refusal):
            reading.end = "refused \(refusal)"
            return reading
        case .needsMore(let part):
            guard !rest.isEmpty else {
                reading.end = "needs more: \(part)"
                return reading
            }
            let size = min(sizes.popFirst() ?? rest.count, rest.count)
            if releasesRoom { reader.releaseRoom() }
            _ = reader.makeRoom()
            reader.bytes.append(contentsOf: rest.prefix(max(size, 1)))
            rest = rest.dropFirst(max(size, 1))
        }
    }
}

private func describe(_ request: Request, in bytes: Span<UInt8>) -> String {
    let head = request.head
    let target = "\(bytes.text(head.path))?\(bytes.text(head.query))"
    return
        "\(bytes.text(head.methodName)) \(target) \(head.keepsAlive ? "keep" : "close") [\(bytes.text(request.body))]"
}

private func read(_ text: String, pieces: [Int] = [], limits: RequestLimits = RequestLimits()) -> Reading {
    read(Array(text.utf8), pieces: pieces, limits: limits)
}

@Suite struct RequestReaderTests {
    @Test(
        "a request that two parsers could read in two ways is refused",
        arguments: [
            ("GET / HTTP/1.1\nHost: a\n\n", Refusal.bareLineFeed),
            ("GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", .bareLineFeed),
            ("\n", .bareLineFeed),
            ("\rGET / HTTP/1.1\r\n", .bareCarriageReturn),
            ("GET / HTTP/1.1\r\nHost: a\r\nX: b\rc\r\n\r\n", .bareCarriageReturn),
            ("\r\n\r\nGET / HTTP/1.1\r\n", .malformedRequestLine),
            ("GET  / HTTP/1.1\r\n", .malformedRequestLine),
            (" GET / HTTP/1.1\r\n", .malformedRequestLine),
            ("GET /\r\n", .malformedRequestLine),
            ("GET\r\n", .malformedRequestLine),
            ("GET / HTTP/1.1 \r\n", .malformedVersion),
            ("GET /a b HTTP/1.1\r\n", .malformedVersion),
            ("GET / http/1.1\r\n", .malformedVersion),
            ("GET / HTTP/1.10\r\n", .malformedVersion),
            ("GET / HTTP/1\r\n", .malformedVersion),
            ("G\u{7f}T / HTTP/1.1\r\n", .malformedMethod),
            ("G(T / HTTP/1.1\r\n", .malformedMethod),
            ("GET token HTTP/1.1\r\n", .malformedTarget),
            ("GET * HTTP/1.1\r\n", .malformedTarget),
            ("GET /#f HTTP/1.1\r\n", .malformedTarget),
            ("GET /é HTTP/1.1\r\n", .malformedTarget),
            ("GET /\u{1} HTTP/1.1\r\n", .malformedTarget),
            ("GET ftp://a/ HTTP/1.1\r\n", .malformedTarget),
            ("GET http:///a HTTP/1.1\r\n", .malformedHost),
            ("GET http://u@h/ HTTP/1.1\r\n", .malformedHost),
            ("CONNECT a:443 HTTP/1.1\r\n", .connectMethod),
            ("GET / HTTP/2.0\r\n", .versionNotSupported),
            ("GET / HTTP/0.9\r\n", .versionNotSupported),
            ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", .malformedFieldName),
            ("GET / HTTP/1.1\r\n: a\r\n\r\n", .malformedFieldName),
            ("GET / HTTP/1.1\r\nHost\r\n\r\n", .malformedFieldName),
            ("GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n", .foldedField),
            ("GET / HTTP/1.1\r\n\tHost: a\r\n\r\n", .foldedField),
            ("GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n", .malformedFieldValue),
            ("GET / HTTP/1.1\r\nHost: a\r\nX: \u{7f}\r\n\r\n", .malformedFieldValue),
            ("GET / HTTP/1.1\r\n\r\n", .missingHost),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", .repeatedHost),
            ("GET / HTTP/1.0\r\nHost: a\r\nhost: b\r\n\r\n", .repeatedHost),
            ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", .malformedHost),
            ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", .malformedHost),
            ("GET / HTTP/1.1\r\nHost: a:b\r\n\r\n", .malformedHost),
            ("GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", .malformedHost),
            ("GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", .malformedHost),
            ("GET / HTTP/1.1\r\nHost: a%zz\r\n\r\n", .malformedHost),
            ("GET / HTTP/1.1\r\nHost: a%\r\n\r\n", .malformedHost),
            ("GET / HTTP/1.1\r\nHost: a%4\r\n\r\n", .malformedHost),
            ("GET / HTTP/1.1\r\nHost: %4g\r\n\r\n", .malformedHost),
            ("GET / HTTP/1.1\r\nHost: a%4:80\r\n\r\n", .malformedHost),
            ("GET / HTTP/1.1\r\nHost: a:%34\r\n\r\n", .malformedHost),
            ("GET / HTTP/1.1\r\nHost: [fe80::1%25a]\r\n\r\n", .malformedHost),
            ("GET http://a%zz/ HTTP/1.1\r\n", .malformedHost),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", .repeatedContentLength),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\n", .malformedContentLength),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n", .malformedContentLength),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", .malformedContentLength),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x1\r\n\r\n", .malformedContentLength),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", .malformedContentLength),
            (
                "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
                .lengthAndTransferEncoding
            ),
            (
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n",
                .lengthAndTransferEncoding
            ),
            ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n", .chunkedNotLast),
            ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n", .chunkedNotLast),
            ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n", .chunkedNotLast),
            ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n\r\n", .chunkedNotLast),
            ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \u{b}chunked\r\n\r\n", .malformedFieldValue),
            ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", .unknownTransferCoding),
            (
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
                .repeatedTransferEncoding
            ),
            ("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", .transferEncodingInOldVersion),
            ("POST / HTTP/1.0\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", .transferEncodingInOldVersion),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Type: a\r\nContent-Type: a\r\n\r\n", .repeatedContentType),
            ("POST / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n\r\n", .unknownExpectation),
        ]
    )
    func refuses(input: String, refusal: Refusal) {
        #expect(read(input).end == "refused \(refusal)")
        // Whatever the pieces it comes in.
        let bytewise = Array(repeating: 1, count: input.utf8.count)
        #expect(read(input, pieces: bytewise).end == "refused \(refusal)")
    }

    @Test(
        "a well-formed request is read",
        arguments: [
            ("GET /token?a=b HTTP/1.1\r\nHost: a\r\n\r\n", "GET /token?a=b keep []"),
            ("\r\nGET / HTTP/1.1\r\nHost:\r\n\r\n", "GET /? keep []"),
            ("GET / HTTP/1.0\r\n\r\n", "GET /? close []"),
            ("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "GET /? keep []"),
            ("GET / HTTP/1.1\r\nHost: a\r\nConnection: x, CLOSE\r\n\r\n", "GET /? close []"),
            ("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nConnection: keep-alive\r\n\r\n", "GET /? close []"),
            ("GET / HTTP/1.7\r\nHost: [::1]:80\r\n\r\n", "GET /? keep []"),
            ("GET / HTTP/1.1\r\nHost: a%41%fF.b%2e:80\r\n\r\n", "GET /? keep []"),
            ("GET http://b:1/p?q HTTP/1.1\r\nHost: a\r\n\r\n", "GET /p?q keep []"),
            ("OPTIONS http://b HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS ? keep []"),
            ("GET HTTPS://b?q HTTP/1.1\r\nHost: a\r\n\r\n", "GET ?q keep []"),
            ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS *? keep []"),
            ("GET /{\"a\":<b>} HTTP/1.1\r\nHost: a\r\n\r\n", "GET /{\"a\":<b>}? keep []"),
            ("GET /a?b?c HTTP/1.1\r\nHost: a\r\n\r\n", "GET /a?b?c keep []"),
            ("POST / HTTP/1.1\r\nhOST:a\r\nCONTENT-length: \t2 \r\n\r\nhi", "POST /? keep [hi]"),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 00\r\n\r\n", "POST /? keep []"),
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", "GET /? keep [hi]"),
            (
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n"
                    + "2\r\nhi\r\n00003;a=\"b\"\r\n you\r\n0\r\nX: y\r\n\r\n",
                "refused"
            ),
            (
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n"
                    + "2\r\nhi\r\n0004;a=\"b\"\r\n you\r\n0\r\nX: y\r\n\r\n",
                "POST /? keep [hi you]"
            ),
        ]
    )
    func reads(input: String, description: String) {
        let expected =
            description == "refused"
            ? Reading(end: "refused malformedChunkEnd") : Reading(requests: [description], end: "needs more: start")
        #expect(read(input) == expected)
        #expect(read(input, pieces: Array(repeating: 1, count: input.utf8.count)) == expected)
        for cut in 1..<input.utf8.count { #expect(read(input, pieces: [cut]) == expected) }
    }

    @Test("every beginning of a valid request needs more")
    func prefixesNeedMore() {
        let input = Array(
            "POST /token?x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n".utf8
        )
        for length in 0..<input.count {
            let reading = read(Array(input[..<length]))
            #expect(reading.requests.isEmpty && reading.end.hasPrefix("needs more"), "\(length) bytes: \(reading)")
        }
    }

    @Test("an empty line behind a body is no beginning of a request", arguments: ["\r\n", "\r"])
    func emptyLineBehindBody(line: String) {
        let input = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi" + line
        #expect(read(input) == Reading(requests: ["POST /? keep [hi]"], end: "needs more: start"))
        let next = line == "\r" ? "\n" : ""
        let both = read(input + next + "GET / HTTP/1.1\r\nHost: a\r\n\r\n", pieces: [input.utf8.count])
        #expect(both.requests.count == 2)
    }

    @Test(
        "all lines of a forwarded header are found, and no other ones",
        arguments: [
            ("", []), ("X-Forwarded-Proto: a\r\n", ["a"]), ("X-Forwarded-Proto:\r\n", [""]),
            ("X-Forwarded-Proto: a\r\nx-forwarded-PROTO:\t b, c \r\nX-Forwarded-Proto: a\r\n", ["a", "b, c", "a"]),
            ("X-Forwarded-Proto: \r\nX: y\r\nX-Forwarded-Proto: a\r\nX-Forwarded-Proto:\r\n", ["", "a", ""]),
            (
                "X-Forwarded-Proto: a\r\nX-Forwarded-Protocol: b\r\nY: X-Forwarded-Proto: c\r\n"
                    + "X-Forwarded-Proto: d \r\nX-Forwarded-Proto2: e\r\n", ["a", "d"]
            ),
        ]
    )
    func forwardedLines(fields: String, expected: [String]) {
        let request = Array("GET / HTTP/1.1\r\nHost: a\r\n\(fields)\r\n".utf8)
        var reader = RequestReader(limits: RequestLimits())
        for byte in request {
            _ = reader.next()
            reader.bytes.append(byte)
        }
        _ = reader.next()
        let bytes = reader.requestBytes
        #expect(reader.request.head.forwarding.protos(in: bytes).map { bytes.text($0) } == expected)
    }

    @Test("requests that come together are read one after the other")
    func pipelining() {
        let input =
            "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n"
            + "POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
            + "POST /3 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n2\r\nyz\r\n0\r\n\r\n"
            + "HEAD /4 HTTP/1.1\r\nHost: a\r\n\r\n"
        let expected = Reading(
            requests: ["GET /1? keep []", "POST /2? keep [abc]", "POST /3? keep [xyz]", "HEAD /4? keep []"],
            end: "needs more: start"
        )
        #expect(read(input) == expected)
        for cut in 1..<input.utf8.count { #expect(read(input, pieces: [cut]) == expected) }
    }

    @Test("leave to send the body is given once, to those who wait for it")
    func expectation() {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n\r\n"
        #expect(read(head).continues == 1)
        #expect(read(head + "hi", pieces: [head.utf8.count, 1]).continues == 1)
        #expect(read(head + "hi").continues == 0)
        let old = "POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
        #expect(read(old).continues == 0)
        let large = "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2000000\r\n\r\n"
        #expect(read(large) == Reading(end: "refused bodyTooLarge"))
        let chunked = "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n"
        #expect(read(chunked).continues == 1)
    }

    @Test("what is at a limit passes, one more does not")
    func limits() {
        let limits = RequestLimits(requestLine: 64, head: 256, fieldCount: 3, body: 16)
        func end(_ text: String) -> String { read(text, limits: limits).end }
        let target = "/" + String(repeating: "a", count: 64 - "GET / HTTP/1.1".count)
        #expect(end("GET \(target) HTTP/1.1\r\nHost: a\r\n\r\n") == "needs more: start")
        #expect(end("GET \(target)a HTTP/1.1\r\nHost: a\r\n\r\n") == "refused targetTooLong")
        #expect(end(String(repeating: "A", count: 66)) == "refused targetTooLong")
        // An over-long target is 414, also where it is longer than the whole head may be.
        #expect(end("GET /" + String(repeating: "a", count: 1_000)) == "refused targetTooLong")

        let start = "GET / HTTP/1.1\r\nHost: a\r\nX: "
        let fits = start + String(repeating: "x", count: 256 - start.utf8.count - 4)
        #expect(end(fits + "\r\n\r\n") == "needs more: start")
        #expect(end(fits + "x\r\n\r\n") == "refused headTooLarge")
        #expect(end("GET / HTTP/1.1\r\nHost: a\r\nA: b\r\nA: b\r\n\r\n") == "needs more: start")
        #expect(end("GET / HTTP/1.1\r\nHost: a\r\nA: b\r\nA: b\r\nA: b\r\n\r\n") == "refused tooManyFields")

        let post = "POST / HTTP/1.1\r\nHost: a\r\n"
        let body = String(repeating: "b", count: 16)
        #expect(end(post + "Content-Length: 16\r\n\r\n" + body) == "needs more: start")
        #expect(end(post + "Content-Length: 17\r\n\r\n") == "refused bodyTooLarge")
        #expect(end(post + "Content-Length: 99999999999999999999999999\r\n\r\n") == "refused bodyTooLarge")
        let chunked = post + "Transfer-Encoding: chunked\r\n\r\n"
        #expect(end(chunked + "10\r\n\(body)\r\n0\r\n\r\n") == "needs more: start")
        #expect(end(chunked + "8\r\n12345678\r\n9\r\n") == "refused bodyTooLarge")
        #expect(end(chunked + "FFFFFFFF\r\n") == "refused bodyTooLarge")
        #expect(end(chunked + "0\r\n" + String(repeating: "X: y\r\n", count: 50)) == "refused headTooLarge")
    }

    @Test(
        "a malformed chunk is refused",
        arguments: [
            ("\r\n", Refusal.malformedChunkSize), ("x\r\n", .malformedChunkSize), ("-1\r\n", .malformedChunkSize),
            ("+1\r\n", .malformedChunkSize), ("0x1\r\n", .malformedChunkSize), (" 1\r\n", .malformedChunkSize),
            ("1 \r\n", .malformedChunkSize), ("100000000\r\n", .malformedChunkSize),
            ("1;\u{1}\r\n", .malformedChunkSize), ("1\n", .bareLineFeed), ("1\r\nab\r\n", .malformedChunkEnd),
            ("1\r\na\n", .malformedChunkEnd), ("0\r\nX : y\r\n\r\n", .malformedFieldName),
            ("0\r\n y\r\n\r\n", .foldedField), ("1;" + String(repeating: "a", count: 256), .chunkLineTooLong),
        ]
    )
    func chunks(chunks: String, refusal: Refusal) {
        let input = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + "zz"
        #expect(read(input).end == "refused \(refusal)")
        #expect(read(input, pieces: Array(repeating: 1, count: input.utf8.count)).end == "refused \(refusal)")
    }

    @Test("a body in many small chunks takes no more room than its data")
    func chunkOverhead() {
        var reader = RequestReader(limits: RequestLimits())
        reader.bytes.append(contentsOf: Array("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".utf8))
        for _ in 0..<10_000 {
            _ = reader.makeRoom()
            reader.bytes.append(contentsOf: Array("00000001\r\nx\r\n".utf8))
            guard case .needsMore(.body) = reader.next() else {
                Issue.record("the body is not complete yet")
                return
            }
        }
        #expect(reader.bytes.count < 11_000)
    }

    @Test("chunk extensions together may be as long as a head, and no longer")
    func chunkExtensions() {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        let chunk = "1;" + String(repeating: "e", count: 99) + "\r\nx\r\n"
        let limits = RequestLimits(head: 1_000)
        let fits = read(head + String(repeating: chunk, count: 10) + "0\r\n\r\n", limits: limits)
        #expect(fits.requests == ["POST /? keep [xxxxxxxxxx]"])
        let exceeds = read(head + String(repeating: chunk, count: 10) + "1;e\r\n", limits: limits)
        #expect(exceeds.end == "refused chunkExtensionsTooLong")
    }

    @Test("room is given up, and what is still to be read stays")
    func releasingRoom() throws {
        let body = [UInt8](repeating: 120, count: 100_000)
        var reader = RequestReader(limits: RequestLimits())
        reader.bytes += Array("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n".utf8) + body
        reader.bytes += Array("GET /next HTTP/1.1\r\nHo".utf8)
        guard case .request = reader.next() else {
            Issue.record("the first request is complete")
            return
        }
        reader.finishRequest()
        #expect(reader.isBetweenRequests && reader.bytes.capacity > 100_000)
        reader.releaseRoom()
        #expect(reader.bytes.capacity < 1_000)
        guard case .needsMore(.head) = reader.next() else {
            Issue.record("the second request is not complete yet")
            return
        }
        #expect(!reader.isBetweenRequests)
        reader.releaseRoom()
        reader.bytes += Array("st: b\r\n\r\n".utf8)
        guard case .request = reader.next() else {
            Issue.record("the second request is complete")
            return
        }
        #expect(describe(reader.request, in: reader.requestBytes) == "GET /next? keep []")
    }

    @Test("a body that comes slowly is not copied with each byte, however often its room is given up")
    func slowBodyWithoutRoom() {
        let count = 1 << 20
        var reader = RequestReader(limits: RequestLimits())
        reader.bytes += Array("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: \(count)\r\n\r\n".utf8)
        reader.bytes += [UInt8](repeating: 120, count: count / 2)
        var growths = 0
        for _ in 0..<1_000 {
            guard case .needsMore(.body) = reader.next() else {
                Issue.record("the body is not complete")
                return
            }
            reader.releaseRoom()
            let before = reader.bytes.capacity
            let room = reader.makeRoom()
            reader.bytes.append(addingCapacity: room) { $0.append(120) }
            if reader.bytes.capacity > before { growths += 1 }
        }
        #expect(growths <= 2)
    }

    @Test("the pieces that input comes in change nothing", arguments: 0..<300 as Range<UInt64>)
    func piecesDoNotMatter(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let input = mutated(corpus.randomElement(using: &random) ?? "", using: &random)
        let whole = read(input)
        let pieces = (0..<input.count).map { _ in Int.random(in: 1...20, using: &random) }
        var inPieces = read(input, pieces: pieces, releasesRoom: seed.isMultiple(of: 2))
        // Whether leave to send was asked for depends on what was there already.
        inPieces.continues = whole.continues
        #expect(inPieces == whole, "\(String(decoding: input, as: UTF8.self).debugDescription)")
    }

    private let corpus = [
        "GET /token?unique_id=a HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\nGET / HTTP/1.0\r\n\r\n",
        "POST /t HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Type: x\r\n\r\nhelloPUT / HTTP/1.1\r\nHost: b\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\n\r\nGET / HTTP/1.1\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx",
    ]

    /// Inserts, removes and replaces a few bytes, mostly ones that mean something to a parser.
    private func mutated(_ text: String, using random: inout SeededGenerator) -> [UInt8] {
        var bytes = Array(text.utf8)
        let tokens = ["\r", "\n", "\r\n", " ", ":", "\0", "\t", ",", "0", "f", ";", "\u{ff}", "Host: a\r\n", "/"]
        for _ in 0..<Int.random(in: 0...3, using: &random) {
            let place = Int.random(in: 0..<bytes.count, using: &random)
            switch Int.random(in: 0...2, using: &random) {
            case 0: bytes.remove(at: place)
            case 1: bytes.insert(contentsOf: Array((tokens.randomElement(using: &random) ?? "").utf8), at: place)
            default: bytes[place] = UInt8.random(in: 0...255, using: &random)
            }
        }
        return bytes
    }
}
