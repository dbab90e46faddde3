import Testing

@testable import HTTP

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
