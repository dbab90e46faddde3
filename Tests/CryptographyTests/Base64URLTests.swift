import TestSupport
import Testing

@testable import Cryptography

@Suite struct Base64URLTests {
    private func decode(_ text: String) -> [UInt8]? {
        Base64URL.decode(Array(text.utf8).span)
    }

    @Test(
        "the vectors of RFC 4648, without padding",
        arguments: [
            ("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg"), ("fooba", "Zm9vYmE"),
            ("foobar", "Zm9vYmFy"),
        ])
    func vectors(text: String, encoded: String) {
        #expect(Base64URL.encode(Array(text.utf8).span) == encoded)
        #expect(decode(encoded) == Array(text.utf8))
        #expect(Base64URL.length(of: text.utf8.count) == encoded.utf8.count)
    }

    @Test("the alphabet is that for URLs")
    func alphabet() {
        #expect(Base64URL.encode([0xfb, 0xff, 0xbf].span) == "-_-_")
        #expect(decode("-_-_") == [0xfb, 0xff, 0xbf])
    }

    @Test(
        "what the encoder never writes is refused",
        arguments: [
            "Z", "Zm9vZ", "Zg==", "Zg=", "=", "Zm8=", "Zm9v\n", "Zm 9v", " ", "Zm9v====", "+/+/", "Zm9v.", "Zh", "Zm9",
            "Z\u{0}", "Zé",
        ])
    func refused(text: String) {
        #expect(decode(text) == nil)
    }

    @Test("each text has one meaning, and each meaning one text")
    func roundTrip() {
        let seed = UInt64.random(in: .min ... .max)
        var generator = SeededGenerator(seed: seed)
        for _ in 0..<2_000 {
            let bytes = (0..<Int.random(in: 0..<40, using: &generator)).map { _ in
                UInt8.random(in: .min ... .max, using: &generator)
            }
            let text = Array(Base64URL.encode(bytes.span).utf8)
            #expect(Base64URL.decode(text.span) == bytes, "seed \(seed)")
            guard !text.isEmpty else { continue }
            var other = text
            other[Int.random(in: other.indices, using: &generator)] = UInt8.random(in: .min ... .max, using: &generator)
            if let decoded = Base64URL.decode(other.span) {
                #expect(Array(Base64URL.encode(decoded.span).utf8) == other, "seed \(seed)")
            }
        }
    }
}
