import Foundation
import HTTP
import TestSupport
import Testing

@Suite struct PreconditionsTests {
    /// The preconditions of a request with these header lines; nil if one is malformed.
    private func preconditions(_ lines: [String]) -> Preconditions? {
        let bytes = Array(("GET /token HTTP/1.1\r\nHost: a\r\n" + lines.map { $0 + "\r\n" }.joined() + "\r\n").utf8)
        var reader = RequestReader(limits: RequestLimits())
        _ = reader.makeRoom()
        reader.bytes.append(contentsOf: bytes)
        guard case .request = reader.next() else { return nil }
        return try? Preconditions(of: reader.request.head, in: reader.requestBytes)
    }

    private static func tags(_ texts: String...) -> EntityTags {
        .tags(texts.map { EntityTag(opaque: Array($0.utf8)) })
    }

    @Test
    func `most requests have none`() {
        #expect(preconditions([]) == Preconditions())
    }

    @Test
    func `a list may span lines, and its elements may be empty`() {
        #expect(preconditions([#"If-Match: "1""#]) == Preconditions(match: Self.tags("1")))
        #expect(
            preconditions([#"if-match: "1" , "2""#, #"If-Match:,"3",,"#])
                == Preconditions(match: Self.tags("1", "2", "3")))
        #expect(preconditions([#"If-None-Match: "a,b""#]) == Preconditions(noneMatch: Self.tags("a,b")))
        #expect(
            preconditions([#"If-None-Match: W/"1""#])
                == Preconditions(noneMatch: .tags([EntityTag(isWeak: true, opaque: [UInt8(ascii: "1")])])))
        #expect(
            preconditions(["If-Match: *", #"If-None-Match: "7""#])
                == Preconditions(match: .any, noneMatch: Self.tags("7")))
        #expect(preconditions([#"If-None-Match: """#]) == Preconditions(noneMatch: Self.tags("")))
    }

    @Test(
        arguments: [
            "If-Match:", "If-Match: ,", "If-Match: 1", #"If-Match: "1"#, #"If-Match: "1" "2""#, #"If-Match: w/"1""#,
            #"If-Match: *, "1""#, "If-None-Match: W/", #"If-Match: W/ "1""#, "If-Match: '1'",
        ])
    func `anything else is malformed`(_ line: String) {
        #expect(preconditions([line]) == nil)
    }

    @Test(arguments: [0, 1])
    func `a list has at most 32 tags`(_ more: Int) {
        let list = repeatElement(#""a""#, count: Preconditions.tagLimit / 2)
        let last = repeatElement(#""b""#, count: Preconditions.tagLimit / 2 + more)
        let lines = [list, last].map { "If-None-Match: " + $0.joined(separator: ",") }
        #expect((preconditions(lines) == nil) == (more == 1))
    }

    @Test
    func `a version is the number of its own tag, and no other text is`() {
        var random = SeededGenerator(seed: 7)
        let numbers = [0, 1, 9, 10, 15, 16, .max] + (0..<200).map { _ in Int64.random(in: 0...(.max), using: &random) }
        for number in numbers {
            var output: [UInt8] = []
            ResponseEncoder(unixTime: 0).encode(Response(body: [], version: number), .init(), into: &output)
            let text = String(decoding: output, as: UTF8.self)
            let start = text.range(of: "ETag: ")?.upperBound ?? text.endIndex
            let tag = text[start...].prefix { $0 != "\r\n" }
            #expect(preconditions(["If-Match: \(tag)"])?.match == Self.tags(String(tag.dropFirst().dropLast())))
            #expect(EntityTag(opaque: Array(tag.dropFirst().dropLast().utf8)).number == number)
        }
        for text in ["", "00", "01", "A", "g", "-1", " 1", "8000000000000000", "10000000000000000"] {
            #expect(EntityTag(opaque: Array(text.utf8)).number == nil)
        }
    }
}
