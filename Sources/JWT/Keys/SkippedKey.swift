/// A key of a set that verifies nothing here, and why (RFC 7517, section 5, asks for skipping it).
package struct SkippedKey: Hashable, Sendable, CustomStringConvertible {
    package enum Reason: Error, Hashable, Sendable {
        /// It is null, for example.
        case notAnObject
        /// `kty` is none of RSA, EC and OKP, or missing.
        case unknownType
        /// `kty` is oct: a secret that makes signatures as well.
        case symmetric
        /// `crv` is none of P-256, P-384, P-521 and, for OKP, Ed25519.
        case unknownCurve
        /// `use` is not sig, or `key_ops` lacks verify.
        case notForSignatures
        /// `alg` is not an algorithm that can be allowed.
        case unknownAlgorithm
        /// `alg` belongs to another kind of key.
        case algorithmOfAnotherType(JWTAlgorithm)
        /// The settings do not allow the key's algorithm, or none for this kind of key.
        case algorithmNotAllowed
        /// The member is missing, is not a string, or not base64url of the right length.
        case malformed(member: String)
        /// The modulus has this many bits.
        case modulusSize(Int)
        /// The exponent is even, below 3 or has more than 32 bits.
        case exponent
        /// The point is not on its curve, or of small order; the modulus is not a product of two large primes.
        case invalidKey
        /// The set has the same key under the same `kid` before.
        case repeated
        /// No token could name it among several keys.
        case withoutKeyID

        /// Whether something is wrong with the key; false for one that is only meant for something else.
        package var isFault: Bool {
            switch self {
            case .unknownType, .unknownCurve, .notForSignatures, .unknownAlgorithm, .algorithmNotAllowed, .repeated:
                false
            case .notAnObject, .symmetric, .algorithmOfAnotherType, .malformed, .modulusSize, .exponent, .invalidKey,
                .withoutKeyID:
                true
            }
        }
    }

    /// Counted from 1.
    package let position: Int
    /// As the set has it, if that is short and printable.
    package let keyID: String?
    package let reason: Reason

    init(position: Int, keyID: [UInt8]?, reason: Reason) {
        self.position = position
        self.keyID = keyID.flatMap(Self.printable)
        self.reason = reason
    }

    /// A key id for people; nil for one that a log should not have.
    static func printable(_ keyID: [UInt8]) -> String? {
        let isPrintable = keyID.count <= 100 && keyID.allSatisfy { 0x21...0x7e ~= $0 }
        return isPrintable && !keyID.isEmpty ? String(decoding: keyID, as: UTF8.self) : nil
    }

    package var description: String {
        let name = keyID.map { "key \(position) (kid \($0))" } ?? "key \(position)"
        return "\(name) is not used: \(reason.description)"
    }
}

extension SkippedKey.Reason: CustomStringConvertible {
    package var description: String {
        switch self {
        case .notAnObject: "it is no object"
        case .unknownType: "its kty is none of RSA, EC and OKP"
        case .symmetric: "it is symmetric (kty oct), and who can verify with it could sign too"
        case .unknownCurve: "its crv is none of P-256, P-384 and P-521 for EC, Ed25519 for OKP"
        case .notForSignatures: "its use is not sig, or its key_ops do not contain verify"
        case .unknownAlgorithm:
            "its alg is none of \(JWTAlgorithm.allCases.map(\.rawValue).joined(separator: ", "))"
        case .algorithmOfAnotherType(let algorithm): "its alg \(algorithm.rawValue) does not belong to its kty and crv"
        case .algorithmNotAllowed: "the settings do not allow its algorithm"
        case .malformed(let member): "its \(member) is missing or malformed"
        case .modulusSize(let bits):
            "its modulus has \(bits) bits, and \(JWK.modulusBits.lowerBound) to \(JWK.modulusBits.upperBound) are accepted"
        case .exponent: "its exponent is not an odd number from 3 to 4294967295"
        case .invalidKey: "its numbers do not make a valid key (a point off its curve, or a modulus that is none)"
        case .repeated: "the set has the same key before"
        case .withoutKeyID: "it has no kid, which a set of several keys needs"
        }
    }
}
