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
