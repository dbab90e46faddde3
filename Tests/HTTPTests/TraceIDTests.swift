import Foundation
import Testing

@testable import HTTP

@Suite struct TraceIDTests {
    private static let trace = "0af7651916cd43dd8448eb211c80319c"
    private static let valid = "00-\(trace)-b7ad6b7169203331-01"

    private func read(_ text: String) -> String? {
        let bytes = Array("x\(text)y".utf8)
        return TraceID(parent: ByteRange(1, bytes.count - 1), in: bytes.span)?.text
    }

    @Test(arguments: [valid, "01-\(trace)-b7ad6b7169203331-ff", "fe-\(trace)-b7ad6b7169203331-00-more"])
    func `the trace id of a valid traceparent is read`(_ text: String) {
        #expect(read(text) == Self.trace)
    }

    @Test func `every prefix of a valid one is none`() {
        for count in 0..<Self.valid.utf8.count {
            #expect(read(String(Self.valid.prefix(count))) == nil)
        }
    }

    @Test func `a valid one with another character at any place is none, or of another version`() {
        for index in Self.valid.indices {
            for other in ["G", "A", " ", "_"] {
                #expect(read(Self.valid.replacingCharacters(in: index...index, with: other)) == nil)
            }
        }
    }

    @Test(arguments: [
        valid + "-", valid + "0", "ff" + valid.dropFirst(2), "01" + valid.dropFirst(2) + "0",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01", "00-\(trace)-0000000000000000-01",
        "01" + valid.dropFirst(2) + "-" + String(repeating: "x", count: 256),
    ])
    func `what breaks a rule is none`(_ text: String) {
        #expect(read(text) == nil)
    }
}
