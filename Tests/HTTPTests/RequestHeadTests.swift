import HTTP
import Testing

/// The head of a request.
@Suite struct RequestHeadTests {
    @Test(
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
            ("GET / HTTP/1.1\r\nHost: \(String(repeating: "a", count: 262))\r\n\r\n", .malformedHost),
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
            ("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue, 200-ok\r\n\r\n", .unknownExpectation),
        ]
    )
    func `a request that two parsers could read in two ways is refused`(input: String, refusal: Refusal) {
        #expect(read(input).end == "refused \(refusal)")
        // Whatever the pieces it comes in.
        let bytewise = Array(repeating: 1, count: input.utf8.count)
        #expect(read(input, pieces: bytewise).end == "refused \(refusal)")
    }

    @Test(
        arguments: [
            ("GET /token?a=b HTTP/1.1\r\nHost: a\r\n\r\n", "GET /token?a=b keep []"),
            ("\r\nGET / HTTP/1.1\r\nHost:\r\n\r\n", "GET /? keep []"),
            ("GET / HTTP/1.0\r\n\r\n", "GET /? close []"),
            ("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "GET /? keep []"),
            ("GET / HTTP/1.1\r\nHost: a\r\nConnection: x, CLOSE\r\n\r\n", "GET /? close []"),
            ("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nConnection: keep-alive\r\n\r\n", "GET /? close []"),
            ("GET / HTTP/1.1\r\nHost: a\r\nConnection: , ,close\t,\r\n\r\n", "GET /? close []"),
            ("GET / HTTP/1.1\r\nHost: a\r\nConnection: closed, close d\r\n\r\n", "GET /? keep []"),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nConnection: \(String(repeating: "a", count: 128))\r\n\r\n",
                "GET /? keep []"
            ),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nConnection: \(String(repeating: "a", count: 129))\r\n\r\n",
                "GET /? close []"
            ),
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
                    + "2\r\nhi\r\n0004;a=\"b\"\r\n you\r\n0\r\nX: y\r\n\r\n",
                "POST /? keep [hi you]"
            ),
        ]
    )
    func `a well-formed request is read`(input: String, description: String) {
        let expected = Reading(requests: [description], end: "needs more: start")
        #expect(read(input) == expected)
        #expect(read(input, pieces: Array(repeating: 1, count: input.utf8.count)) == expected)
        for cut in 1..<input.utf8.count { #expect(read(input, pieces: [cut]) == expected) }
    }
}
