import Foundation
import HTTP
import Testing

@Suite struct ResponseTests {
    private func encoded(_ response: Response, _ traits: ResponseEncoder.Traits = .init()) -> String {
        let encoder = ResponseEncoder(unixTime: 784_111_777)
        var output: [UInt8] = []
        encoder.encode(response, traits, into: &output)
        return String(decoding: output, as: UTF8.self)
    }

    @Test(arguments: [Status.ok, .badRequest])
    func `answers over https say that browsers are to use it for a year`(status: Status) {
        let field = "\r\nStrict-Transport-Security: max-age=31536000\r\n"
        #expect(encoded(Response(status: status, body: []), .init(sendsHSTS: true)).contains(field))
        #expect(!encoded(Response(status: status, body: [])).contains("Strict"))
    }

    @Test
    func `an answer has its fields, its length and its body`() {
        #expect(
            encoded(Response(body: Array("{}".utf8))) == """
                HTTP/1.1 200 OK\r
                Content-Type: application/json\r
                Cache-Control: no-store\r
                X-Content-Type-Options: nosniff\r
                Date: Sun, 06 Nov 1994 08:49:37 GMT\r
                Content-Length: 2\r
                \r
                {}
                """
        )
    }

    @Test
    func `a redirect without content names no type of it`() {
        let location = Array("https://a/".utf8)
        #expect(!encoded(Response(status: .found, body: [], location: location)).contains("\r\nContent-Type"))
        let created = Response(status: .created, body: Array("{}".utf8), location: location)
        #expect(encoded(created).contains("\r\nContent-Type: application/json\r\n"))
    }

    @Test
    func `the head says what becomes of the connection`() {
        let response = Response(status: .badRequest, body: [])
        #expect(encoded(response).contains("Connection") == false)
        #expect(encoded(response, .init(closes: true)).contains("\r\nConnection: close\r\n"))
        #expect(encoded(response, .init(isOldVersion: true)).contains("\r\nConnection: keep-alive\r\n"))
        #expect(encoded(response, .init(closes: true, isOldVersion: true)).contains("\r\nConnection: close\r\n"))
    }

    @Test
    func `the answer to HEAD ends with its head and claims no length`() {
        let text = encoded(Response(body: Array("{}".utf8)), .init(omitsBody: true))
        #expect(text.hasSuffix("GMT\r\n\r\n"))
        #expect(!text.contains("Content-Length"))
    }

    @Test
    func `an answer shows its version, and one without a body as well`() {
        #expect(
            encoded(Response(body: Array("{}".utf8), version: 0x1f)).hasSuffix(
                "Content-Length: 2\r\nETag: \"1f\"\r\n\r\n{}"))
        let unchanged = encoded(Response(status: .notModified, body: [], version: 10))
        #expect(unchanged.hasSuffix("GMT\r\nETag: \"a\"\r\n\r\n"))
    }

    @Test
    func `an answer says what is missing, and when to come again`() {
        var response = Response(status: .unauthorized, body: [])
        response.extras = Response.Extras(challenge: .invalidToken)
        #expect(encoded(response).contains("\r\nWWW-Authenticate: Bearer error=\"invalid_token\"\r\n"))
        response = Response(status: .tooManyRequests, body: [])
        response.extras = Response.Extras(retryAfter: 17)
        #expect(encoded(response).contains("\r\nRetry-After: 17\r\n"))
        response.status = .ok
        #expect(encoded(response).contains("\r\nRetry-After: 17\r\nContent-Length: 0\r\n"))
        response = Response(status: .methodNotAllowed, body: [])
        #expect(encoded(response).contains("\r\nAllow: GET, HEAD, POST\r\n"))
        response.extras = Response.Extras(allowedMethods: "DELETE")
        #expect(encoded(response).contains("\r\nAllow: DELETE\r\n"))
    }

    @Test(arguments: [0, 7, 9, 10, 99, 100, 101, 1_234_567_890])
    func `a length is written in decimal`(number: Int) {
        var output: [UInt8] = []
        output.appendLengthAndEndOfHead(number)
        #expect(String(decoding: output, as: UTF8.self) == "\(number)\r\n\r\n")
    }

    @Test(
        arguments: [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"), (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (951_868_799, "Tue, 29 Feb 2000 23:59:59 GMT"), (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
            (1_767_225_599, "Wed, 31 Dec 2025 23:59:59 GMT"), (1_791_627_009, "Sat, 10 Oct 2026 10:10:09 GMT"),
            (1_791_627_010, "Sat, 10 Oct 2026 10:10:10 GMT"),
        ]
    )
    func `dates are those of the calendar`(unixTime: Int64, text: String) {
        #expect(String(decoding: HTTPDate.text(unixTime: unixTime), as: UTF8.self) == text)
    }

    @Test(arguments: Refusal.allCases)
    func `every refusal has an error status and a sentence`(refusal: Refusal) {
        #expect(refusal.status.rawValue >= 400)
        #expect(refusal.message.hasSuffix("."))
    }
}

@Suite struct RequestIDTests {
    @Test(
        arguments: [
            (0, "0000000000000000"), (0xABCDEF, "0000000000abcdef"), (0x0123_4567_89AB_CDEF, "0123456789abcdef"),
            (0xFEDC_BA98_7654_3210, "fedcba9876543210"), (.max, "ffffffffffffffff"),
        ] as [(UInt64, String)])
    func `a made id has sixteen digits`(_ number: UInt64, _ text: String) {
        #expect(RequestID.made(number).text == text)
    }

    @Test func `no digit of an id is left in the head that is kept for the next answers`() {
        let encoder = ResponseEncoder(unixTime: 0)
        let ids: [RequestID] = [.made(1), .made(.max), .given(Array("a-b_c.d".utf8)), .none, .made(2)]
        for sendsHSTS in [false, true] {
            for id in ids {
                var output: [UInt8] = []
                encoder.encode(
                    Response(body: Array("{}".utf8)), ResponseEncoder.Traits(sendsHSTS: sendsHSTS), requestID: id,
                    into: &output
                )
                let lines = String(decoding: output, as: UTF8.self).split(separator: "\r\n")
                let named = lines.filter { $0.hasPrefix("X-Request-Id: ") }
                #expect(named == (id.text.map { ["X-Request-Id: \($0)"] } ?? []))
                #expect(lines.contains("Content-Length: 2") && lines.last == "{}")
            }
        }
    }
}
