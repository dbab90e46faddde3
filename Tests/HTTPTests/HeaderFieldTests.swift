import Testing

@testable import HTTP

@Suite struct HeaderFieldTests {
    @Test(arguments: HeaderField.allCases)
    func `each field is known by its name in any case`(_ field: HeaderField) {
        let name = "\(field.name)"
        for text in [name, name.uppercased()] {
            let bytes = Array(text.utf8)
            #expect(HeaderField(ByteRange(0, bytes.count), in: bytes.span) == field)
        }
    }

    @Test(arguments: [
        "hos", "hosts", "x-forwarded", "x-forwarded_for", "content-typo", "x-real-io", "forwardes", "sec-fetch-mode",
        "",
    ])
    func `other names are passed over`(_ name: String) {
        let bytes = Array(name.utf8)
        #expect(HeaderField(ByteRange(0, bytes.count), in: bytes.span) == nil)
    }

    @Test(arguments: ["X-Forwarded-By", "x-forwarded-host", "X-Forwarded-Port", "x-forwarded-prot"])
    func `whatever begins with X-Forwarded says that there was a proxy`(_ name: String) {
        let bytes = Array(name.utf8)
        #expect(HeaderField(ByteRange(0, bytes.count), in: bytes.span) == .otherForwarded)
    }

    @Test(arguments: Method.allCases)
    func `each method is known by its name, as it is written`(_ method: Method) {
        let bytes = Array("\(method.name ?? "BREW")".utf8)
        #expect(Method(ByteRange(0, bytes.count), in: bytes.span) == method)
        let lowered = bytes.map { $0 | 0x20 }
        #expect(Method(ByteRange(0, lowered.count), in: lowered.span) == .other)
    }
}

/// Fields that the parser makes nothing of, as those look for them who do.
@Suite struct FieldValuesTests {
    /// Header lines, and the values of `Origin` in them.
    private static let cases: [(lines: String, values: [String])] = [
        ("Host: a\r\n", []),
        ("Host: a\r\nOrigin: https://b.example\r\n", ["https://b.example"]),
        ("ORIGIN:null\r\nHost: a\r\noRiGiN:  two \t\r\n", ["null", "two"]),
        ("Host: a\r\nOrigin:\r\n", [""]),
        // What follows the colon may be half of a character for those who compare characters (U+0301).
        ("Host: a\r\nOrigin:\u{301}b\r\n", ["\u{301}b"]),
        ("Host: a\r\nX-Origin: b\r\nOriginal: c\r\nReferer: Origin: d\r\nOrigi: n\r\n", []),
    ]

    private static func origins(of reader: RequestReader) -> [String] {
        let bytes = reader.requestBytes
        return reader.request.head.values(of: .origin, in: bytes).map { bytes.text($0) }
    }

    @Test(arguments: cases)
    func `values are found by the bytes of the name`(_ lines: String, _ values: [String]) {
        var reader = RequestReader(limits: RequestLimits())
        // The second of two like it is understood by comparing it with the first; what follows is of neither.
        for line in ["GET / HTTP/1.1\r\n", "GET /longer HTTP/1.1\r\n"] {
            reader.bytes += Array((line + lines + "\r\n").utf8)
            guard case .request = reader.next() else {
                Issue.record("it was not read")
                return
            }
            reader.bytes += Array("Origin: of nobody\r\n".utf8)
            let found = Self.origins(of: reader)
            #expect(found == values)
            reader.bytes.removeLast("Origin: of nobody\r\n".utf8.count)
            reader.finishRequest()
        }
    }
}

/// Ids of requests as they are shown.
struct RequestIDTests {
    @Test(
        arguments: [
            (0, "0000000000000000"), (0xABCDEF, "0000000000abcdef"), (0x0123_4567_89AB_CDEF, "0123456789abcdef"),
            (0xFEDC_BA98_7654_3210, "fedcba9876543210"), (.max, "ffffffffffffffff"),
        ] as [(UInt64, String)])
    func `a made id has sixteen digits`(_ number: UInt64, _ text: String) {
        #expect(RequestID.made(number).text == text)
    }

    @Test func `no digit of an id is left in the head that is kept for the next answers`() {
        let encoder = ResponseEncoder(unixTime: 0, secureForSeconds: 60)
        let ids: [RequestID] = [.made(1), .made(.max), .given(Array("a-b_c.d".utf8)), .none, .made(2)]
        for isSecure in [false, true] {
            for id in ids {
                var output: [UInt8] = []
                encoder.encode(
                    Response(body: Array("{}".utf8)), ResponseEncoder.Traits(isSecure: isSecure), requestID: id,
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
