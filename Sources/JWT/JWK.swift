import Cryptography
import JSON

/// One public key of a set (RFC 7517, section 4), with the algorithms that it is used with.
struct JWK {
    /// `kid`.
    let keyID: [UInt8]?
    let key: PublicKey
    /// That of `alg`, or else those of its kind, as the key set does not say which one the issuer signs with.
    let algorithms: [JWTAlgorithm]

    /// Bits of an RSA modulus: fewer are too weak (RFC 7518, section 3.3), more take too long.
    static let modulusBits = 2048...8192
    /// Members that a key may have.
    static let memberLimit = 64
    /// Bytes that a public exponent may have; nearly all keys have 65537.
    private static let exponentLength = 4

    /// - Parameters:
    ///   - members: The members of the key's object.
    ///   - text: The set's text.
    init(_ members: JSONObject, in text: Span<UInt8>) throws(SkippedKey.Reason) {
        if Self.isSymmetric(members) { throw .symmetric }
        guard let type = Self.keyType(of: members), Self.isForVerification(members, in: text),
            let algorithms = try Self.algorithms(of: members, type)
        else { throw .otherUse }
        self.algorithms = algorithms
        keyID = Self.keyID(of: members)
        let encoded =
            switch type {
            case .rsa: try Self.rsaKey(members)
            case .ellipticCurve(let curve): try Self.ellipticCurveKey(members, curve)
            case .ed25519: try Self.ed25519Key(members)
            }
        guard let key = PublicKey(encoded, type) else { throw .invalidKey }
        self.key = key
    }

    /// `kty` and, where there are several, `crv`; nil if no algorithm has such keys.
    private static func keyType(of members: JSONObject) -> JWTAlgorithm.KeyType? {
        switch members.text("kty") {
        case "RSA": .rsa
        case "EC": members.text("crv").flatMap(EllipticCurve.init).map(JWTAlgorithm.KeyType.ellipticCurve)
        case "OKP": members.text("crv") == "Ed25519" ? .ed25519 : nil
        default: nil
        }
    }

    private static func isSymmetric(_ members: JSONObject) -> Bool { members.text("kty") == "oct" }

    /// The name of a member that only private keys have (RFC 7518, sections 6.2.2 and 6.3.2; RFC 8037, section 2).
    static func privateMember(of members: JSONObject) -> String? {
        isSymmetric(members) ? nil : ["d", "p", "q", "dp", "dq", "qi", "oth"].first(where: members.has)
    }

    /// `kid`; nil if the key has none.
    static func keyID(of members: JSONObject) -> [UInt8]? {
        if case .string(let keyID) = members["kid"] { keyID } else { nil }
    }

    /// `use` and `key_ops` (RFC 7517, sections 4.2 and 4.3), which may both be missing.
    private static func isForVerification(_ members: JSONObject, in text: Span<UInt8>) -> Bool {
        guard !members.has("use") || members.text("use") == "sig" else { return false }
        guard let operations = members["key_ops"] else { return true }
        guard case .array(let range) = operations,
            let names = JSONObject.strings(text, range, limit: memberLimit)
        else { return false }
        return names.contains(Array("verify".utf8))
    }

    /// `alg`, or all algorithms of a type; nil for an unknown `alg`.
    private static func algorithms(
        of members: JSONObject, _ type: JWTAlgorithm.KeyType
    ) throws(SkippedKey.Reason) -> [JWTAlgorithm]? {
        guard members.has("alg") else { return JWTAlgorithm.allCases.filter { $0.keyType == type } }
        guard case .string(let name) = members["alg"], let algorithm = JWTAlgorithm(name: name) else { return nil }
        guard algorithm.keyType == type else { throw .malformed(member: "alg") }
        return [algorithm]
    }

    /// The key's name in messages.
    var name: String { "kid \(keyID.flatMap(SkippedKey.printable) ?? "unprintable or missing")" }

    // MARK: - The kinds of keys

    private static func rsaKey(_ members: JSONObject) throws(SkippedKey.Reason) -> [UInt8] {
        // Some issuers write a zero for the sign before the modulus, which RFC 7518 (section 6.3.1.1) asks them to omit.
        let modulus = Array(try decoded("n", of: members).drop { $0 == 0 })
        let bits = modulus.count * 8 - (modulus.first?.leadingZeroBitCount ?? 0)
        guard modulusBits.contains(bits) else { throw .modulusSize(bits) }
        let exponent = Array(try decoded("e", of: members).drop { $0 == 0 })
        let isUsable = exponent.count <= exponentLength && exponent.last.map { $0 & 1 == 1 } ?? false && exponent != [1]
        guard isUsable else { throw .malformed(member: "e") }
        return DER.rsaKey(modulus: modulus, exponent: exponent)
    }

    private static func ellipticCurveKey(
        _ members: JSONObject, _ curve: EllipticCurve
    ) throws(SkippedKey.Reason) -> [UInt8] {
        let (x, y) = (try decoded("x", of: members), try decoded("y", of: members))
        // RFC 7518, section 6.2.1.2.
        guard x.count == curve.length else { throw .malformed(member: "x") }
        guard y.count == curve.length else { throw .malformed(member: "y") }
        return DER.ellipticCurveKey(curve, x: x, y: y)
    }

    private static func ed25519Key(_ members: JSONObject) throws(SkippedKey.Reason) -> [UInt8] {
        let point = try decoded("x", of: members)
        guard point.count == 32 else { throw .malformed(member: "x") }
        // Little endian, and the highest bit is the sign of x.
        let y = Hexadecimal.text(point.dropLast() + [point[31] & 0x7f])
        guard !ed25519SmallOrders.contains(y) else { throw .invalidKey }
        return DER.ed25519Key(point)
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

    private static func decoded(_ name: String, of members: JSONObject) throws(SkippedKey.Reason) -> [UInt8] {
        guard case .string(var text) = members[name] else { throw .malformed(member: name) }
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
        static let otherUse = Reason(
            "it is not for verifying signatures (use, key_ops), or its kty, crv or alg is unknown", isFault: false)
        static let symmetric = Reason("it is symmetric (kty oct), so whoever verifies with it could also sign")
        /// The member is missing, not a string, not base64url, has the wrong length, or belongs to another kind of key.
        static func malformed(member: String) -> Reason {
            Reason("its \(member) is missing or malformed, or does not belong to its kty and crv")
        }
        static func modulusSize(_ bits: Int) -> Reason {
            let (least, most) = (JWK.modulusBits.lowerBound, JWK.modulusBits.upperBound)
            return Reason("its modulus has \(bits) bits, and \(least) to \(most) are accepted")
        }
        /// Also for a point of Ed25519 of small order.
        static let invalidKey = Reason(
            "its numbers do not make a valid key (such as a point that is not on its curve, or an invalid modulus)")
        /// No token could name it among several keys.
        static let withoutKeyID = Reason("it has no text as its kid, which a set of several keys needs")
    }

    /// Counted from 1.
    let position: Int
    /// The key's `kid`; nil if it is long or not printable.
    let keyID: String?
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
