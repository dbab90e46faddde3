internal import Cryptography
internal import JSON

/// One public key of a set (RFC 7517, section 4), with the one algorithm that it is used with.
struct JWK {
    /// `kid`.
    let keyID: [UInt8]?
    let key: PublicKey

    /// Bits of an RSA modulus: fewer are too weak (RFC 7518, section 3.3), more take too long.
    static let modulusBits = 2048...8192
    /// Members that a key may have.
    static let memberLimit = 64
    /// Bytes that a public exponent may have; nearly all keys have 65537.
    private static let exponentLength = 4

    private enum KeyType: String, CaseIterable {
        case rsa = "RSA"
        case ellipticCurve = "EC"
        case octetKeyPair = "OKP"
        case symmetric = "oct"
    }

    /// - Parameters:
    ///   - members: The members of the key's object.
    ///   - text: The set's text.
    ///   - algorithms: The allowed ones. A key without `alg` has the first one that fits.
    init(
        _ members: JSONObject, in text: Span<UInt8>, algorithms: [JWTAlgorithm]
    ) throws(SkippedKey.Reason) {
        guard let type = Self.keyType(of: members) else { throw .unknownType }
        guard Self.isForVerification(members, in: text) else { throw .notForSignatures }
        keyID = try Self.keyID(of: members)
        switch type {
        case .symmetric: throw .symmetric
        case .rsa:
            let algorithm = try Self.algorithm(of: members, .rsa, algorithms)
            key = try Self.rsaKey(members, algorithm)
        case .ellipticCurve:
            guard let name = try? Self.string("crv", of: members),
                let curve = EllipticCurve(spelled: name)
            else { throw .unknownCurve }
            let algorithm = try Self.algorithm(of: members, .ellipticCurve(curve), algorithms)
            key = try Self.ellipticCurveKey(members, curve, algorithm)
        case .octetKeyPair:
            guard let name = try? Self.string("crv", of: members), name.elementsEqual("Ed25519".utf8) else {
                throw .unknownCurve
            }
            key = try Self.ed25519Key(members, try Self.algorithm(of: members, .ed25519, algorithms))
        }
    }

    private static func keyType(of members: JSONObject) -> KeyType? {
        (try? string("kty", of: members)).flatMap(KeyType.init(spelled:))
    }

    /// The name of a member that only private keys have (RFC 7518, sections 6.2.2 and 6.3.2; RFC 8037, section 2).
    static func privateMember(of members: JSONObject) -> String? {
        guard let type = keyType(of: members), type != .symmetric else { return nil }
        return ["d", "p", "q", "dp", "dq", "qi", "oth"].first(where: members.has)
    }

    static func keyID(of members: JSONObject) throws(SkippedKey.Reason) -> [UInt8]? {
        members.has("kid") ? try string("kid", of: members) : nil
    }

    /// `use` and `key_ops` (RFC 7517, sections 4.2 and 4.3), which may both be missing.
    private static func isForVerification(_ members: JSONObject, in text: Span<UInt8>) -> Bool {
        if members.has("use") {
            guard let use = try? string("use", of: members), use.elementsEqual("sig".utf8) else { return false }
        }
        guard let operations = members["key_ops"] else { return true }
        guard case .array(let range) = operations,
            let names = JSONObject.strings(text, range, limit: memberLimit)
        else { return false }
        return names.contains(Array("verify".utf8))
    }

    private static func algorithm(
        of members: JSONObject, _ type: JWTAlgorithm.KeyType, _ allowed: [JWTAlgorithm]
    ) throws(SkippedKey.Reason) -> JWTAlgorithm {
        guard members.has("alg") else {
            guard let first = allowed.first(where: { $0.keyType == type }) else { throw .algorithmNotAllowed }
            return first
        }
        guard let name = try? string("alg", of: members),
            let algorithm = JWTAlgorithm(name: name)
        else { throw .unknownAlgorithm }
        guard algorithm.keyType == type else { throw .algorithmOfAnotherType(algorithm) }
        guard allowed.contains(algorithm) else { throw .algorithmNotAllowed }
        return algorithm
    }

    // MARK: - The kinds of keys

    private static func rsaKey(
        _ members: JSONObject, _ algorithm: JWTAlgorithm
    ) throws(SkippedKey.Reason) -> PublicKey {
        // Some issuers write a zero for the sign before the modulus, which RFC 7518 (section 6.3.1.1) asks them to omit.
        let modulus = Array(try decoded("n", of: members).drop { $0 == 0 })
        let bits = modulus.count * 8 - (modulus.first?.leadingZeroBitCount ?? 0)
        guard modulusBits.contains(bits) else { throw .modulusSize(bits) }
        let exponent = Array(try decoded("e", of: members).drop { $0 == 0 })
        let isUsable = exponent.count <= exponentLength && exponent.last.map { $0 & 1 == 1 } ?? false && exponent != [1]
        guard isUsable else { throw .exponent }
        return try made(DER.rsaKey(modulus: modulus, exponent: exponent), algorithm)
    }

    private static func ellipticCurveKey(
        _ members: JSONObject, _ curve: EllipticCurve, _ algorithm: JWTAlgorithm
    ) throws(SkippedKey.Reason) -> PublicKey {
        let (x, y) = (try decoded("x", of: members), try decoded("y", of: members))
        // RFC 7518, section 6.2.1.2.
        guard x.count == curve.length else { throw .malformed(member: "x") }
        guard y.count == curve.length else { throw .malformed(member: "y") }
        return try made(DER.ellipticCurveKey(curve, x: x, y: y), algorithm)
    }

    private static func ed25519Key(
        _ members: JSONObject, _ algorithm: JWTAlgorithm
    ) throws(SkippedKey.Reason) -> PublicKey {
        let point = try decoded("x", of: members)
        guard point.count == 32 else { throw .malformed(member: "x") }
        // Little endian, and the highest bit is the sign of x.
        let y = Hexadecimal.text(point.dropLast() + [point[31] & 0x7f])
        guard !ed25519SmallOrders.contains(y) else { throw .invalidKey }
        return try made(DER.ed25519Key(point), algorithm)
    }

    /// The y of Ed25519's points whose order divides 8, reduced or not.
    ///
    /// Signatures for such a key (zeros as a placeholder, for example) can be made without a private key, and OpenSSL accepts them.
    /// Bytes that are not a point need no check: no signature is valid for them.
    private static let ed25519SmallOrders: Set<String> = [
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    ]

    private static func made(_ encoded: [UInt8], _ algorithm: JWTAlgorithm) throws(SkippedKey.Reason) -> PublicKey {
        guard let key = PublicKey(encoded, algorithm) else { throw .invalidKey }
        return key
    }

    private static func string(_ name: String, of members: JSONObject) throws(SkippedKey.Reason) -> [UInt8] {
        guard case .string(let value) = members[name] else { throw .malformed(member: name) }
        return value
    }

    private static func decoded(_ name: String, of members: JSONObject) throws(SkippedKey.Reason) -> [UInt8] {
        var text = try string(name, of: members)
        // RFC 7515 (section 2) leaves out the padding; some issuers write it.
        for _ in 0..<2 where text.last == UInt8(ascii: "=") { text.removeLast() }
        guard let bytes = Base64URL.decode(text.span) else { throw .malformed(member: name) }
        return bytes
    }
}

/// A key of a set that is not used, and why (RFC 7517, section 5, asks for skipping such keys).
package struct SkippedKey: Hashable, Sendable, CustomStringConvertible {
    package struct Reason: Error, Hashable, Sendable {
        package let description: String
        /// Whether something is wrong with the key; false if it only has another purpose.
        package let isFault: Bool

        private init(_ description: String, isFault: Bool = true) {
            (self.description, self.isFault) = (description, isFault)
        }

        static let notAnObject = Reason("it is no object")
        static let unknownType = Reason("its kty is none of RSA, EC and OKP", isFault: false)
        static let symmetric = Reason("it is symmetric (kty oct), so whoever verifies with it could also sign")
        static let unknownCurve = Reason(
            "its crv is none of P-256, P-384 and P-521 for EC, Ed25519 for OKP", isFault: false)
        static let notForSignatures = Reason("its use is not sig, or its key_ops do not contain verify", isFault: false)
        static let unknownAlgorithm = Reason(
            "its alg is none of \(JWTAlgorithm.allCases.map(\.rawValue).joined(separator: ", "))", isFault: false)
        static func algorithmOfAnotherType(_ algorithm: JWTAlgorithm) -> Reason {
            Reason("its alg \(algorithm.rawValue) does not belong to its kty and crv")
        }
        /// The settings allow no algorithm for this kind of key, or not the one that the key names.
        static let algorithmNotAllowed = Reason("the settings do not allow its algorithm", isFault: false)
        /// The member is missing, is not a string, or not base64url of the right length.
        static func malformed(member: String) -> Reason { Reason("its \(member) is missing or malformed") }
        static func modulusSize(_ bits: Int) -> Reason {
            let (least, most) = (JWK.modulusBits.lowerBound, JWK.modulusBits.upperBound)
            return Reason("its modulus has \(bits) bits, and \(least) to \(most) are accepted")
        }
        static let exponent = Reason("its exponent is not an odd number from 3 to 4294967295")
        /// Also for a point of Ed25519 of small order.
        static let invalidKey = Reason(
            "its numbers do not make a valid key (such as a point that is not on its curve, or an invalid modulus)")
        /// No token could name it among several keys.
        static let withoutKeyID = Reason("it has no kid, which a set of several keys needs")
    }

    /// Counted from 1.
    package let position: Int
    /// The key's `kid`; nil if it is long or not printable.
    package let keyID: String?
    package let reason: Reason

    init(position: Int, keyID: [UInt8]?, reason: Reason) {
        self.position = position
        self.keyID = keyID.flatMap(Self.printable)
        self.reason = reason
    }

    /// A key id as text; nil if it should not get into a log.
    static func printable(_ keyID: [UInt8]) -> String? {
        let isPrintable = keyID.count <= 100 && keyID.allSatisfy { 0x21...0x7e ~= $0 }
        return isPrintable && !keyID.isEmpty ? String(decoding: keyID, as: UTF8.self) : nil
    }

    package var description: String {
        let name = keyID.map { "key \(position) (kid \($0))" } ?? "key \(position)"
        return "\(name) is not used: \(reason.description)"
    }
}
