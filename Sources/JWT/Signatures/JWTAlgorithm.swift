/// The signature algorithms that tokens may be signed with (RFC 7518, section 3.1; RFC 8037).
///
/// There are no symmetric ones: who could verify their signatures could also make them.
package enum JWTAlgorithm: String, CaseIterable, Sendable {
    case rs256 = "RS256"
    case rs384 = "RS384"
    case rs512 = "RS512"
    case ps256 = "PS256"
    case ps384 = "PS384"
    case ps512 = "PS512"
    case es256 = "ES256"
    case es384 = "ES384"
    case es512 = "ES512"
    /// Only with Ed25519.
    case edDSA = "EdDSA"

    /// The algorithm of a name as it stands in `alg`, case included; nil for an unknown one.
    ///
    /// `Ed25519` (RFC 9864) is another name for what `EdDSA` means with a key of that curve.
    package init?(name: some Sequence<UInt8>) {
        let name = Array(name)
        if name.elementsEqual("Ed25519".utf8) { self = .edDSA } else { self.init(spelled: name) }
    }

    /// The kinds of keys (RFC 7517, section 4.1; RFC 7518, section 6.1), each with the curve where there are several.
    enum KeyType: Hashable, Sendable {
        case rsa
        case ellipticCurve(EllipticCurve)
        case ed25519
    }

    var keyType: KeyType {
        switch self {
        case .rs256, .rs384, .rs512, .ps256, .ps384, .ps512: .rsa
        case .es256: .ellipticCurve(.p256)
        case .es384: .ellipticCurve(.p384)
        case .es512: .ellipticCurve(.p521)
        case .edDSA: .ed25519
        }
    }

    /// The digest as OpenSSL names it; nil for Ed25519, which has its own.
    var digest: String? {
        switch self {
        case .rs256, .ps256, .es256: "SHA256"
        case .rs384, .ps384, .es384: "SHA384"
        case .rs512, .ps512, .es512: "SHA512"
        case .edDSA: nil
        }
    }

    /// Whether RSA signatures have PSS's padding (RFC 7518, section 3.5) rather than that of PKCS #1 v1.5.
    var isPSS: Bool {
        switch self {
        case .ps256, .ps384, .ps512: true
        case .rs256, .rs384, .rs512, .es256, .es384, .es512, .edDSA: false
        }
    }
}

/// The curves of RFC 7518, section 6.2.1.1.
enum EllipticCurve: String, CaseIterable, Sendable {
    case p256 = "P-256"
    case p384 = "P-384"
    case p521 = "P-521"

    /// Bytes of a coordinate, and of each of the two numbers of a signature.
    var length: Int {
        switch self {
        case .p256: 32
        case .p384: 48
        case .p521: 66
        }
    }
}

extension CaseIterable where Self: RawRepresentable<String> {
    /// The case of exactly these bytes. (Swift takes strings for equal that differ in bytes.)
    init?(spelled name: [UInt8]) {
        guard let found = Self.allCases.first(where: { $0.rawValue.utf8.elementsEqual(name) }) else { return nil }
        self = found
    }
}
