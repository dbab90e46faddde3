import HTTP
import Testing

/// Several requests, limits, pieces, and the buffer.
@Suite struct RequestReaderTests {
    @Test
    func `requests that come together are read one after the other`() {
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

    @Test
    func `what is at a limit passes, one more does not`() {
        let limits = RequestLimits(head: 256, fieldCount: 3, body: 16)
        func end(_ text: String) -> String { read(text, limits: limits).end }
        func target(_ rest: String) -> String {
            "GET /" + String(repeating: "a", count: 256 - "GET / HTTP/1.1\r\n".utf8.count - rest.utf8.count)
        }
        let fields = "Host: a\r\n\r\n"
        #expect(end(target(fields) + " HTTP/1.1\r\n" + fields) == "needs more: start")
        #expect(end(target(fields) + "a HTTP/1.1\r\n" + fields) == "refused headTooLarge")
        #expect(end(target("") + " HTTP/1.1\r\n" + fields) == "refused headTooLarge")
        #expect(end(target("") + "a HTTP/1.1\r\n" + fields) == "refused targetTooLong")
        #expect(end(String(repeating: "A", count: 255)) == "needs more: head")
        #expect(end(String(repeating: "A", count: 256)) == "refused targetTooLong")
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

    @Test
    func `a line that is too long is refused as that, whether its end is wrong or has not come`() {
        let limits = RequestLimits(head: 256)
        let start = "GET / HTTP/1.1\r\nHost: a\r\nX: "
        for (text, expected) in [
            ("GET /" + String(repeating: "a", count: 256) + " HTTP/1.1\n", "refused targetTooLong"),
            (start + String(repeating: "x", count: 256) + "\n", "refused headTooLarge"),
        ] {
            #expect(read(text, limits: limits).end == expected)
            for cut in 1..<text.utf8.count { #expect(read(text, pieces: [cut], limits: limits).end == expected) }
        }
    }

    @Test
    func `room is given up, and what is still to be read stays`() throws {
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

    @Test
    func `a body that comes slowly is not copied with each byte, however often its room is given up`() {
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
}

/// What a reader makes of some input: its requests, and how it ends.
struct Reading: Equatable, CustomStringConvertible {
    var requests: [String] = []
    var continues = 0
    var end = ""

    var description: String { "\(requests) \(end)" }
}

/// Feeds input in pieces of the given sizes (the rest at once) and describes all that comes out.
func read(_ input: String, pieces: [Int] = [], limits: RequestLimits = RequestLimits()) -> Reading {
    var reader = RequestReader(limits: limits)
    var reading = Reading()
    var rest = Array(input.utf8)[...]
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
            _ = reader.makeRoom()
            reader.bytes.append(contentsOf: rest.prefix(max(size, 1)))
            rest = rest.dropFirst(max(size, 1))
        }
    }
}

func describe(_ request: Request, in bytes: Span<UInt8>) -> String {
    let head = request.head
    let target = "\(bytes.text(head.path))?\(bytes.text(head.query))"
    return
        "\(bytes.text(head.methodName)) \(target) \(head.keepsAlive ? "keep" : "close") [\(bytes.text(request.body))]"
}
