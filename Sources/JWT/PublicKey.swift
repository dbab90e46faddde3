import COpenSSL
import JSON

/// A public key that verifies signatures.
///
/// Any thread, several at once: OpenSSL only reads the key, and each verification has a context of its own.
@safe final class PublicKey: Sendable {
    private let type: JWTAlgorithm.KeyType
    /// Bytes of each signature.
    private let signatureLength: Int
    /// Owned; not changed between `init` and `deinit`.
    private nonisolated(unsafe) let key: OpaquePointer

    /// Nil for a key that OpenSSL refuses, such as a point that is not on its curve or a modulus that is a prime.
    ///
    /// Takes some milliseconds for an RSA key, whose modulus is tested.
    ///
    /// - Parameters:
    ///   - encoded: A SubjectPublicKeyInfo in DER.
    ///   - type: What kind of key that is.
    init?(_ encoded: [UInt8], _ type: JWTAlgorithm.KeyType) {
        defer { ERR_clear_error() }
        let decoded = unsafe encoded.withUnsafeBufferPointer { bytes in
            var next = bytes.baseAddress
            return unsafe d2i_PUBKEY(nil, &next, bytes.count)
        }
        guard let key = unsafe decoded else { return nil }
        guard unsafe Self.isValid(key) else {
            unsafe EVP_PKEY_free(key)
            return nil
        }
        unsafe self.key = unsafe key
        self.type = type
        signatureLength =
            switch type {
            case .rsa: Int(unsafe EVP_PKEY_get_size(key))
            case .ellipticCurve(let curve): 2 * curve.length
            case .ed25519: 64
            }
    }

    deinit {
        unsafe EVP_PKEY_free(key)
    }

    private static func isValid(_ key: OpaquePointer) -> Bool {
        guard let context = unsafe EVP_PKEY_CTX_new_from_pkey(nil, key, nil) else { return false }
        defer { unsafe EVP_PKEY_CTX_free(context) }
        return unsafe EVP_PKEY_public_check(context) == 1
    }

    /// Whether a signature, in the form of RFC 7518 (sections 3.3 to 3.5) and RFC 8037 (section 3.1), is this key's for some bytes.
    ///
    /// - Parameter anySalt: Whether a PSS salt may have any length, and not only that of the hash.
    func verify(
        _ signature: Span<UInt8>, of signed: Span<UInt8>, _ algorithm: JWTAlgorithm, anySalt: Bool = false
    ) -> Bool {
        // All signatures of a key have one length. OpenSSL checks it too, except for ECDSA, whose signatures it takes in DER.
        guard algorithm.keyType == type, signature.count == signatureLength else { return false }
        switch type {
        case .rsa, .ed25519: return verifyEncoded(signature, of: signed, algorithm, anySalt: anySalt)
        case .ellipticCurve(let curve):
            // OpenSSL refuses numbers that are 0 or not below the order of the curve's base point.
            let der = DER.sequence(
                DER.integer(signature.bytes(0..<curve.length)),
                DER.integer(signature.bytes(curve.length..<2 * curve.length))
            )
            return verifyEncoded(der.span, of: signed, algorithm, anySalt: anySalt)
        }
    }

    /// - Parameter signature: In OpenSSL's form.
    private func verifyEncoded(
        _ signature: Span<UInt8>, of signed: Span<UInt8>, _ algorithm: JWTAlgorithm, anySalt: Bool
    ) -> Bool {
        // An error that stayed in this thread's queue would be taken for one of a TLS session.
        defer { if ERR_peek_error() != 0 { ERR_clear_error() } }
        guard let context = unsafe EVP_MD_CTX_new() else { return false }
        defer { unsafe EVP_MD_CTX_free(context) }
        var parameters: OpaquePointer?
        guard unsafe EVP_DigestVerifyInit_ex(context, &parameters, algorithm.digest, nil, nil, key, nil) == 1,
            unsafe !algorithm.isPSS || Self.usePSS(parameters, anySalt: anySalt)
        else { return false }
        return unsafe signature.withUnsafeBufferPointer { signature in
            unsafe signed.withUnsafeBufferPointer { signed in
                unsafe EVP_DigestVerify(
                    context, signature.baseAddress, signature.count, signed.baseAddress, signed.count
                ) == 1
            }
        }
    }

    /// The mask uses the same hash, which is OpenSSL's default, and the salt is as long as the hash (RFC 7518, section 3.5).
    private static func usePSS(_ parameters: OpaquePointer?, anySalt: Bool) -> Bool {
        unsafe EVP_PKEY_CTX_set_rsa_padding(parameters, RSA_PKCS1_PSS_PADDING) == 1
            && EVP_PKEY_CTX_set_rsa_pss_saltlen(parameters, anySalt ? RSA_PSS_SALTLEN_AUTO : RSA_PSS_SALTLEN_DIGEST)
                == 1
    }
}

/// The signature algorithms that tokens may be signed with (RFC 7518, section 3.1; RFC 8037).
///
/// There are no symmetric ones: whoever can verify their signatures can also make them.
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

    /// The algorithm with a name as in `alg`, whose case counts; nil if it is unknown.
    ///
    /// `Ed25519` (RFC 9864) is another name for what `EdDSA` means with a key of that curve.
    init?(name: some Sequence<UInt8>) {
        // Bytes are compared, as Swift's strings may be equal although their bytes differ.
        let name = Array(name)
        let found = Self.allCases.first { $0.rawValue.utf8.elementsEqual(name) }
        guard let algorithm = name.elementsEqual("Ed25519".utf8) ? .edDSA : found else { return nil }
        self = algorithm
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
    var digest: String? { self == .edDSA ? nil : "SHA\(rawValue.suffix(3))" }

    /// Whether RSA signatures have PSS's padding (RFC 7518, section 3.5) rather than that of PKCS #1 v1.5.
    var isPSS: Bool { rawValue.hasPrefix("PS") }
}

extension [JWTAlgorithm] {
    /// The names, for messages.
    var text: String { map(\.rawValue).joined(separator: ", ") }
}

/// The curves of RFC 7518, section 6.2.1.1.
enum EllipticCurve: String, Sendable {
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

/// Writes the few ASN.1 structures in which OpenSSL takes public keys and signatures (DER, ITU-T X.690).
enum DER {
    private enum Tag {
        static let integer: UInt8 = 0x02
        static let bitString: UInt8 = 0x03
        static let null: UInt8 = 0x05
        static let objectIdentifier: UInt8 = 0x06
        static let sequence: UInt8 = 0x30
    }

    private static func element(_ tag: UInt8, _ content: [UInt8]) -> [UInt8] {
        var length: [UInt8] = []
        if content.count < 0x80 {
            length = [UInt8(content.count)]
        } else {
            var rest = content.count
            while rest > 0 {
                length.insert(UInt8(truncatingIfNeeded: rest), at: 0)
                rest >>= 8
            }
            length.insert(0x80 | UInt8(length.count), at: 0)
        }
        return [tag] + length + content
    }

    static func sequence(_ elements: [UInt8]...) -> [UInt8] {
        element(Tag.sequence, elements.flatMap(\.self))
    }

    /// A number of at least 0.
    ///
    /// - Parameter magnitude: Big endian, with any number of leading zeros.
    static func integer(_ magnitude: some Collection<UInt8>) -> [UInt8] {
        let digits = Array(magnitude.drop { $0 == 0 })
        // A first bit of 1 would make it negative.
        let isPositive = digits.first.map { $0 < 0x80 } ?? false
        return element(Tag.integer, isPositive ? digits : [0] + digits)
    }

    // MARK: - Public keys (SubjectPublicKeyInfo: RFC 5280, section 4.1)

    /// An RSA key (RFC 8017, appendix A.1.1).
    static func rsaKey(modulus: [UInt8], exponent: [UInt8]) -> [UInt8] {
        let algorithm: [UInt8] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01]
        return publicKey(
            sequence(element(Tag.objectIdentifier, algorithm), element(Tag.null, [])),
            sequence(integer(modulus), integer(exponent))
        )
    }

    /// A point of a curve (RFC 5480, section 2).
    static func ellipticCurveKey(_ curve: EllipticCurve, x: [UInt8], y: [UInt8]) -> [UInt8] {
        let algorithm: [UInt8] = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01]
        let name: [UInt8] =
            switch curve {
            case .p256: [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07]
            case .p384: [0x2b, 0x81, 0x04, 0x00, 0x22]
            case .p521: [0x2b, 0x81, 0x04, 0x00, 0x23]
            }
        // 4: both coordinates follow.
        return publicKey(
            sequence(element(Tag.objectIdentifier, algorithm), element(Tag.objectIdentifier, name)), [4] + x + y
        )
    }

    /// An Ed25519 key (RFC 8410, section 4).
    static func ed25519Key(_ point: [UInt8]) -> [UInt8] {
        publicKey(sequence(element(Tag.objectIdentifier, [0x2b, 0x65, 0x70])), point)
    }

    private static func publicKey(_ algorithm: [UInt8], _ key: [UInt8]) -> [UInt8] {
        // 0: the last byte has no unused bits.
        sequence(algorithm, element(Tag.bitString, [0] + key))
    }
}
