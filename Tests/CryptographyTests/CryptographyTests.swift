import TestSupport
import Testing

@testable import Cryptography

@Suite struct HashTests {
    @Test("the keyed hash is HMAC-SHA-256, also the second time")
    func keyedHash() throws {
        // RFC 4231, test case 2, with the key filled up with zeros, which HMAC does itself.
        let hash = KeyedHash(SecretKey((Array("Jefe".utf8) + [UInt8](repeating: 0, count: 28)).span))
        for _ in 0..<2 {
            var found: [UInt8] = []
            hash.hash(Array("what do ya want for nothing?".utf8).span, into: &found)
            #expect(Hexadecimal.text(found) == "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843")
        }
    }

    @Test(
        "the digest is SHA-256, also the second time",
        arguments: [
            // FIPS 180-4's examples, as NIST publishes them.
            ("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            ("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (
                "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
            ),
        ])
    func digest(text: String, expected: String) throws {
        let context = SHA256Digest()
        for _ in 0..<2 {
            var found: [UInt8] = [1, 2, 3]
            context.digest(Array(text.utf8).span, into: &found)
            #expect(Hexadecimal.text(found) == expected)
        }
        #expect(Hexadecimal.text(SHA256Digest.digest(of: Array(text.utf8).span)) == expected)
    }

    @Test("a comparison sees every difference")
    func comparison() throws {
        let bytes = RandomBytes.secret(32)
        let isItself = ConstantTime.areEqual(bytes.span, bytes.span)
        let areNone = ConstantTime.areEqual([UInt8]().span, [UInt8]().span)
        #expect(isItself && areNone)
        for index in bytes.indices {
            var other = bytes
            other[index] ^= 1
            let isEqual = ConstantTime.areEqual(bytes.span, other.span)
            let isPrefixEqual = ConstantTime.areEqual(bytes.span, Array(bytes[..<index]).span)
            #expect(!isEqual && !isPrefixEqual)
        }
    }

    @Test("random bytes are as many as were asked for, and never the same")
    func random() throws {
        #expect(RandomBytes.published(0).isEmpty)
        #expect(RandomBytes.published(16).count == 16)
        #expect(RandomBytes.published(16) != RandomBytes.published(16))
        #expect(RandomBytes.secret(32) != RandomBytes.secret(32))
    }
}

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
        "text that the encoder never writes is refused",
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

@Suite struct HexadecimalTests {
    @Test(
        "digits of either case are read, and nothing else",
        arguments: [
            ("", []), ("00ff", [0, 255]), ("aBcDeF09", [0xab, 0xcd, 0xef, 9]), ("0", nil), ("000", nil), ("0g", nil),
            ("0x", nil), (" 00", nil), ("-1", nil), ("\u{ff11}0", nil),
        ] as [(String, [UInt8]?)])
    func reading(text: String, bytes: [UInt8]?) {
        #expect(Hexadecimal.decode(text.utf8) == bytes)
        if let bytes { #expect(Hexadecimal.text(bytes) == text.lowercased()) }
    }
}

struct SecretTextTests {
    private struct Holder {
        let password: SecretText?
    }

    @Test func `a secret is not printed, in whatever it is kept`() {
        let secret = SecretText("s3cret")
        var texts = ["\(secret)", String(reflecting: secret), "\(Holder(password: secret))", "\([secret])"]
        for value in [secret as Any, Holder(password: secret)] {
            var dumped = ""
            dump(value, to: &dumped)
            texts.append(dumped)
        }
        for text in texts { #expect(!text.contains("s3cret") && text.contains("(secret)"), "\(text)") }
        #expect(secret.text == "s3cret")
    }
}
