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

/// Fields that the parser ignores, as the code that needs them looks them up.
@Suite struct FieldValuesTests {
    /// Header lines, and the values of `Origin` in them.
    private static let cases: [(lines: String, values: [String])] = [
        ("Host: a\r\n", []),
        ("Host: a\r\nOrigin: https://b.example\r\n", ["https://b.example"]),
        ("ORIGIN:null\r\nHost: a\r\noRiGiN:  two \t\r\n", ["null", "two"]),
        ("Host: a\r\nOrigin:\r\n", [""]),
        // The combining accent (U+0301) and the colon before it are one character.
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
        // The second request's fields are only compared with the first's; the bytes that follow belong to neither.
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
