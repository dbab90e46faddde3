import Testing

@testable import Cryptography

@Suite struct HashTests {
    private func hex(_ bytes: [UInt8]) -> String {
        bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }

    @Test("the keyed hash is HMAC-SHA-256, also the second time")
    func keyedHash() throws {
        // RFC 4231, test case 2, with the key filled up with zeros, which HMAC does itself.
        let hash = try KeyedHash(SecretKey((Array("Jefe".utf8) + [UInt8](repeating: 0, count: 28)).span))
        for _ in 0..<2 {
            var found: [UInt8] = []
            try hash.hash(Array("what do ya want for nothing?".utf8).span, into: &found)
            #expect(hex(found) == "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843")
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
        let context = try SHA256Digest()
        for _ in 0..<2 {
            var found: [UInt8] = [1, 2, 3]
            try context.digest(Array(text.utf8).span, into: &found)
            #expect(hex(found) == expected)
        }
        #expect(try hex(SHA256Digest.digest(of: Array(text.utf8).span)) == expected)
    }

    @Test("a comparison sees every difference")
    func comparison() throws {
        let bytes = try RandomBytes.secret(32)
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
        #expect(try RandomBytes.published(0).isEmpty)
        #expect(try RandomBytes.published(16).count == 16)
        #expect(try RandomBytes.published(16) != RandomBytes.published(16))
        #expect(try RandomBytes.secret(32) != RandomBytes.secret(32))
    }
}
