import HTTP
import Testing

/// The body of a request.
@Suite struct RequestBodyTests {
    @Test
    func `leave to send the body is given once, to those who wait for it`() {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n\r\n"
        #expect(read(head).continues == 1)
        #expect(read(head + "hi", pieces: [head.utf8.count, 1]).continues == 1)
        #expect(read(head + "hi").continues == 0)
        let old = "POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
        #expect(read(old).continues == 0)
        let none = "POST / HTTP/1.1\r\nHost: a\r\nExpect:\r\nContent-Length: 2\r\n\r\n"
        #expect(read(none) == read(none.replacing("Expect:\r\n", with: "")))
        #expect(read(head.replacing("100-Continue", with: "100-continue , ,100-Continue,")).continues == 1)
        let large = "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2000000\r\n\r\n"
        #expect(read(large) == Reading(end: "refused bodyTooLarge"))
        let chunked = "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n"
        #expect(read(chunked).continues == 1)
    }

    @Test(
        arguments: [
            ("\r\n", Refusal.malformedChunkSize), ("x\r\n", .malformedChunkSize), ("-1\r\n", .malformedChunkSize),
            ("+1\r\n", .malformedChunkSize), ("0x1\r\n", .malformedChunkSize), (" 1\r\n", .malformedChunkSize),
            ("1 \r\n", .malformedChunkSize), ("1 \t\r\n", .malformedChunkSize),
            ("1 a;b\r\n", .malformedChunkSize), ("1 ;\n", .bareLineFeed), ("1\r;a\r\n", .malformedChunkSize),
            ("1 ;a\r=b\r\n", .malformedChunkSize), ("1\u{b};a\r\n", .malformedChunkSize),
            ("100000000\r\n", .malformedChunkSize),
            ("1;\u{1}\r\n", .malformedChunkSize), ("1\n", .bareLineFeed), ("1\r\nab\r\n", .malformedChunkEnd),
            ("1\r\na\n", .malformedChunkEnd), ("0\r\nX : y\r\n\r\n", .malformedFieldName),
            ("0\r\n y\r\n\r\n", .foldedField), ("1;" + String(repeating: "a", count: 256), .chunkLineTooLong),
        ]
    )
    func `a malformed chunk is refused`(chunks: String, refusal: Refusal) {
        let input = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + "zz"
        #expect(read(input).end == "refused \(refusal)")
        #expect(read(input, pieces: Array(repeating: 1, count: input.utf8.count)).end == "refused \(refusal)")
    }

    @Test
    func `a body in many small chunks takes no more room than its data`() {
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

    @Test
    func `chunk extensions together may be as long as a head, and no longer`() {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        let chunk = "1;" + String(repeating: "e", count: 99) + "\r\nx\r\n"
        let limits = RequestLimits(head: 1_000)
        let fits = read(head + String(repeating: chunk, count: 10) + "0\r\n\r\n", limits: limits)
        #expect(fits.requests == ["POST /? keep [xxxxxxxxxx]"])
        let exceeds = read(head + String(repeating: chunk, count: 10) + "1;e\r\n", limits: limits)
        #expect(exceeds.end == "refused chunkExtensionsTooLong")
    }

    @Test(arguments: ["3;a=b", "3 ;a=b", "3\t ; a = b", "3 ; a=\"b c\" \t; d", "3;", "3 ;"])
    func `blanks may surround the signs of chunk extensions`(line: String) {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        let input = head + line + "\r\nabc\r\n0 ;e\r\n\r\n"
        #expect(read(input).requests == ["POST /? keep [abc]"])
        #expect(read(input, pieces: Array(repeating: 1, count: input.utf8.count)).requests == ["POST /? keep [abc]"])
    }

    @Test(arguments: ["\r\n", "\r"])
    func `an empty line behind a body is no beginning of a request`(line: String) {
        let input = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi" + line
        #expect(read(input) == Reading(requests: ["POST /? keep [hi]"], end: "needs more: start"))
        let next = line == "\r" ? "\n" : ""
        let both = read(input + next + "GET / HTTP/1.1\r\nHost: a\r\n\r\n", pieces: [input.utf8.count])
        #expect(both.requests.count == 2)
    }
}
