import Testing

@testable import JWT

/// Signatures that no signer makes, as far as OpenSSL leaves them to this program.
struct SignatureTests {
    private static let message = Array("header.claims".utf8)

    private static func key(_ key: SigningKey, _ more: String = "") throws -> JWK {
        try #require(try Issuer.keys(Issuer.keySet([key.jwk(more)])).onlyKey)
    }

    private static func isAccepted(_ signature: [UInt8], by key: JWK, of message: [UInt8] = message) -> Bool {
        key.verify(signature.span, of: message.span)
    }

    @Test(arguments: [(Issuer.p256, "SHA256"), (Issuer.p384, "SHA384"), (Issuer.p521, "SHA512")])
    func `an ECDSA signature has one form`(_ signer: SigningKey, _ digest: String) throws {
        let key = try Self.key(signer)
        let good = signer.sign(Self.message, digest: digest)
        #expect(Self.isAccepted(good, by: key))
        let (r, s) = (Array(good.prefix(good.count / 2)), Array(good.suffix(good.count / 2)))
        let (zero, all) = ([UInt8](repeating: 0, count: r.count), [UInt8](repeating: 0xff, count: r.count))
        let der = DER.sequence(DER.integer(r), DER.integer(s))
        let others: [[UInt8]] = [
            [], [0], der, Array(good.dropLast()), Array(good.dropFirst()), good + [0], [0] + good, r, r + s + s, s + r,
            [0] + r + [0] + s, zero + zero, zero + s, r + zero, all + all, all + s, r + all,
            // DER of the length that is asked for.
            Array((der + good).prefix(good.count)),
        ]
        for other in others { #expect(!Self.isAccepted(other, by: key)) }
        for position in good.indices {
            var changed = good
            changed[position] ^= 1 << UInt8(position % 8)
            #expect(!Self.isAccepted(changed, by: key))
        }
        #expect(!Self.isAccepted(good, by: key, of: Self.message + [0]))
        #expect(!Self.isAccepted(good, by: key, of: []))
        #expect(!Self.isAccepted(signer.sign(Self.message, digest: "SHA1"), by: key))
    }

    @Test func `a PSS signature has a salt as long as the hash`() throws {
        let key = try Self.key(Issuer.rsa, #","alg":"PS256""#)
        for length: Int32 in [0, 20, 31, 32, 33, 64] {
            let signature = Issuer.rsa.sign(Self.message, isPSS: true, saltLength: length)
            #expect(Self.isAccepted(signature, by: key) == (length == 32))
        }
        #expect(!Self.isAccepted(Issuer.rsa.sign(Self.message), by: key))
        #expect(!Self.isAccepted(Issuer.rsa.sign(Self.message, digest: "SHA512", isPSS: true), by: key))
    }
}
