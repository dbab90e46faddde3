import Testing

@testable import JWT

/// Signatures that no signer makes, after the kinds of cases in Project Wycheproof.
struct SignatureTests {
    private static let message = Array("header.claims".utf8)

    private static func key(_ key: SigningKey, _ more: String = "") throws -> PublicKey {
        try #require(try Issuer.keys(Issuer.keySet([key.jwk(more)])).onlyKey)
    }

    private static func isAccepted(_ signature: [UInt8], by key: PublicKey, of message: [UInt8] = message) -> Bool {
        key.verify(signature.span, of: message.span)
    }

    // MARK: - ECDSA

    struct Curve: Sendable, CustomTestStringConvertible {
        let name: String
        let key: SigningKey
        let digest: String
        /// The order of the base point (SEC 2), big endian.
        let order: [UInt8]

        var testDescription: String { name }
        var length: Int { order.count }
    }

    static let curves = [
        Curve(
            name: "P-256", key: Issuer.p256, digest: "SHA256",
            order: hexadecimal("ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551")
        ),
        Curve(
            name: "P-384", key: Issuer.p384, digest: "SHA384",
            order: hexadecimal(
                "ffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973")
        ),
        Curve(
            name: "P-521", key: Issuer.p521, digest: "SHA512",
            order: hexadecimal(
                "01" + String(repeating: "f", count: 65) + "a"
                    + "51868783bf2f966b7fcc0148f709a5d03bb5c9b8899c47aebb6fb71e91386409")
        ),
    ]

    @Test(arguments: curves)
    func `numbers of an ECDSA signature are from 1 to below the order`(_ curve: Curve) throws {
        let key = try Self.key(curve.key)
        let good = curve.key.sign(Self.message, digest: curve.digest)
        let (r, s) = (Array(good.prefix(curve.length)), Array(good.suffix(curve.length)))
        #expect(Self.isAccepted(good, by: key))
        let zero = [UInt8](repeating: 0, count: curve.length)
        let all = [UInt8](repeating: 0xff, count: curve.length)
        var one = zero
        one[curve.length - 1] = 1
        let order = curve.order
        let special = [zero, one, less(order, one), order, plus(order, one).suffix(curve.length), all]
        for first in special + [r] {
            for second in special + [s] where (first, second) != (r, s) {
                #expect(!Self.isAccepted(Array(first) + second, by: key))
            }
        }
        // The same numbers modulo the order, where they fit.
        for (first, second) in [(plus(r, order), s), (r, plus(s, order))] where first.count + second.count == good.count
        {
            #expect(!Self.isAccepted(first + second, by: key))
        }
        #expect(!Self.isAccepted(s + r, by: key))
        // The negative of s makes another signature of the same message. It is one that the signer could have made.
        #expect(Self.isAccepted(r + less(order, s), by: key))
    }

    @Test(arguments: curves)
    func `an ECDSA signature has one form`(_ curve: Curve) throws {
        let key = try Self.key(curve.key)
        let good = curve.key.sign(Self.message, digest: curve.digest)
        let (r, s) = (Array(good.prefix(curve.length)), Array(good.suffix(curve.length)))
        let der = DER.sequence(DER.integer(r), DER.integer(s))
        let others: [[UInt8]] = [
            [], [0], der, Array(good.dropLast()), Array(good.dropFirst()), good + [0], [0] + good, r, r + s + s,
            [0] + r + [0] + s, Array(repeating: 0, count: good.count), Array(repeating: 0xff, count: good.count),
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
        #expect(!Self.isAccepted(curve.key.sign(Self.message, digest: "SHA1"), by: key))
    }

    // MARK: - EdDSA

    @Test func `an EdDSA signature has one form`() throws {
        let key = try Self.key(Issuer.ed25519)
        let good = Issuer.ed25519.sign(Self.message)
        let (point, scalar) = (Array(good.prefix(32)), Array(good.suffix(32)))
        #expect(Self.isAccepted(good, by: key))
        // The order of the base point (RFC 8032, section 5.1), and multiples of it, little endian.
        let order = hexadecimal("1000000000000000000000000000000014def9dea2f79cd65812631a5cf5d3ed")
        var beyond = Array(scalar.reversed())
        for _ in 0..<8 {
            beyond = plus(beyond, order)
            guard beyond.count == 32 else { break }
            #expect(!Self.isAccepted(point + beyond.reversed(), by: key), "the scalar is below the order")
        }
        let zero = [UInt8](repeating: 0, count: 32)
        let others: [[UInt8]] = [
            [], good + [0], Array(good.dropLast()), point, scalar + point, zero + zero, zero + scalar, point + zero,
            point + order.reversed(), [1] + zero.dropLast() + zero, [UInt8](repeating: 0xff, count: 64),
            // The neutral point with another encoding: y = p + 1.
            hexadecimal("eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f") + zero,
        ]
        for other in others { #expect(!Self.isAccepted(other, by: key)) }
        for position in good.indices {
            for bit in 0..<8 {
                var changed = good
                changed[position] ^= 1 << UInt8(bit)
                #expect(!Self.isAccepted(changed, by: key))
            }
        }
        #expect(!Self.isAccepted(good, by: key, of: Self.message.dropLast()))
    }

    // MARK: - RSA

    /// SHA-256's prefix of the hash in a signature (RFC 8017, section 9.2, note 1).
    private static let prefix = hexadecimal("3031300d060960864801650304020105000420")

    /// A block as PKCS #1 v1.5 has it, 256 bytes long, with another part in one place.
    private static func block(
        first: [UInt8] = [0, 1], padding: UInt8 = 0xff, separator: UInt8 = 0, prefix: [UInt8] = prefix,
        hash: [UInt8]? = nil, tail: [UInt8] = []
    ) -> [UInt8] {
        let end = [separator] + prefix + (hash ?? sha256(message)) + tail
        return first + [UInt8](repeating: padding, count: 256 - first.count - end.count) + end
    }

    @Test func `an RSA signature of PKCS #1 v1.5 has one form`() throws {
        let key = try Self.key(Issuer.rsa, #","alg":"RS256""#)
        let good = Issuer.rsa.sign(Self.message)
        #expect(Self.isAccepted(good, by: key))
        #expect(Issuer.rsa.signBlock(Self.block()) == good)
        let withoutNull = hexadecimal("302f300b06096086480165030402010420")
        let withLongLength = hexadecimal("308131300d060960864801650304020105000420")
        let ofSHA1 = hexadecimal("3021300906052b0e03021a05000414")
        let blocks: [[UInt8]] = [
            Self.block(first: [0, 2]), Self.block(first: [0, 0]), Self.block(padding: 0xfe), Self.block(padding: 0),
            Self.block(separator: 1), Self.block(prefix: []), Self.block(prefix: withoutNull),
            Self.block(prefix: withLongLength),
            Self.block(prefix: ofSHA1, hash: Array(sha256(Self.message).prefix(20))),
            Self.block(hash: [UInt8](repeating: 0, count: 32)), Self.block(tail: [0]),
            // Little padding and much behind the hash (Bleichenbacher, 2006).
            Self.block(tail: [UInt8](repeating: 0, count: 192)),
            Self.block(hash: sha256(Self.message) + [0]),
        ]
        for block in blocks { #expect(!Self.isAccepted(Issuer.rsa.signBlock(block), by: key)) }
        let modulus = Issuer.rsa.number("n")
        let zero = [UInt8](repeating: 0, count: 256)
        let others: [[UInt8]] = [
            [], good + [0], [0] + good, Array(good.dropLast()), Array(good.dropFirst()), zero, modulus,
            [UInt8](repeating: 0xff, count: 256), zero.dropLast() + [1], less(modulus, zero.dropLast() + [1]),
            plus(good, modulus), Self.block(),
        ]
        for other in others { #expect(!Self.isAccepted(other, by: key)) }
        for position in stride(from: 0, to: 256, by: 7) {
            var changed = good
            changed[position] ^= 0x10
            #expect(!Self.isAccepted(changed, by: key))
        }
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
