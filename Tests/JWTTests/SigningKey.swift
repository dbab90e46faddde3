import COpenSSL
import Cryptography

/// A private key that signs tokens for tests, made anew for each run.
final class SigningKey: @unchecked Sendable {
    enum Kind {
        case rsa(bits: Int32)
        case ellipticCurve(String)
        case ed25519
    }

    let kind: Kind
    /// Not changed after `init`.
    private let key: OpaquePointer

    init(_ kind: Kind) {
        self.kind = kind
        var key: OpaquePointer?
        let name =
            switch kind {
            case .rsa: "RSA"
            case .ellipticCurve: "EC"
            case .ed25519: "ED25519"
            }
        let context = EVP_PKEY_CTX_new_from_name(nil, name, nil)
        defer { EVP_PKEY_CTX_free(context) }
        precondition(EVP_PKEY_keygen_init(context) == 1)
        switch kind {
        case .rsa(let bits): precondition(EVP_PKEY_CTX_set_rsa_keygen_bits(context, bits) == 1)
        case .ellipticCurve(let curve): precondition(EVP_PKEY_CTX_set_group_name(context, curve) == 1)
        case .ed25519: break
        }
        precondition(EVP_PKEY_generate(context, &key) == 1)
        guard let key else { preconditionFailure("a key was generated") }
        self.key = key
    }

    deinit {
        EVP_PKEY_free(key)
    }

    /// Bytes of a coordinate of the curve.
    private var coordinate: Int {
        guard case .ellipticCurve(let curve) = kind else { return 0 }
        return ["P-384": 48, "P-521": 66][curve] ?? 32
    }

    // MARK: - The public part

    /// The members of a JWK that make the public key.
    var members: String {
        switch kind {
        case .rsa: #""kty":"RSA","n":"\#(base64(number("n")))","e":"\#(base64(number("e")))""#
        case .ellipticCurve(let curve):
            #""kty":"EC","crv":"\#(curve)","x":"\#(base64(number("qx", coordinate)))","#
                + #""y":"\#(base64(number("qy", coordinate)))""#
        case .ed25519: #""kty":"OKP","crv":"Ed25519","x":"\#(base64(point))""#
        }
    }

    /// A JWK.
    ///
    /// - Parameter more: Members beside those of the key, with a comma before each.
    func jwk(_ more: String = "") -> String { "{\(members)\(more)}" }

    /// A number of the public key, big endian; without `length`, as short as possible.
    func number(_ name: String, _ length: Int? = nil) -> [UInt8] {
        var number: OpaquePointer?
        precondition(EVP_PKEY_get_bn_param(key, name, &number) == 1)
        defer { BN_free(number) }
        let count = length ?? (Int(BN_num_bits(number)) + 7) / 8
        var bytes = [UInt8](repeating: 0, count: count)
        precondition(BN_bn2binpad(number, &bytes, Int32(count)) == count)
        return bytes
    }

    /// The 32 bytes of an Ed25519 key.
    var point: [UInt8] {
        var (bytes, length) = ([UInt8](repeating: 0, count: 32), 32)
        precondition(EVP_PKEY_get_raw_public_key(key, &bytes, &length) == 1)
        return bytes
    }

    // MARK: - Signatures

    /// A signature in the form that RFC 7518 gives it.
    func sign(_ bytes: [UInt8], digest: String = "SHA256", isPSS: Bool = false, saltLength: Int32 = -1) -> [UInt8] {
        let context = EVP_MD_CTX_new()
        defer { EVP_MD_CTX_free(context) }
        var parameters: OpaquePointer?
        let name: String? = if case .ed25519 = kind { nil } else { digest }
        precondition(EVP_DigestSignInit_ex(context, &parameters, name, nil, nil, key, nil) == 1)
        if isPSS {
            precondition(EVP_PKEY_CTX_set_rsa_padding(parameters, RSA_PKCS1_PSS_PADDING) == 1)
            precondition(EVP_PKEY_CTX_set_rsa_pss_saltlen(parameters, saltLength) == 1)
        }
        var length = 0
        precondition(EVP_DigestSign(context, nil, &length, bytes, bytes.count) == 1)
        var signature = [UInt8](repeating: 0, count: length)
        precondition(EVP_DigestSign(context, &signature, &length, bytes, bytes.count) == 1)
        signature.removeLast(signature.count - length)
        if case .ellipticCurve = kind { return fixed(signature) }
        return signature
    }

    /// ECDSA's two numbers one after the other, out of DER.
    private func fixed(_ der: [UInt8]) -> [UInt8] {
        der.withUnsafeBufferPointer { bytes in
            var next = bytes.baseAddress
            let signature = d2i_ECDSA_SIG(nil, &next, bytes.count)
            defer { ECDSA_SIG_free(signature) }
            var (r, s) = (
                [UInt8](repeating: 0, count: coordinate), [UInt8](repeating: 0, count: coordinate)
            )
            precondition(BN_bn2binpad(ECDSA_SIG_get0_r(signature), &r, Int32(coordinate)) == coordinate)
            precondition(BN_bn2binpad(ECDSA_SIG_get0_s(signature), &s, Int32(coordinate)) == coordinate)
            return r + s
        }
    }
}

func base64(_ bytes: [UInt8]) -> String { Base64URL.encode(bytes.span) }
func base64(_ text: String) -> String { base64(Array(text.utf8)) }

func decoded(_ text: String) -> [UInt8]? {
    let bytes = Array(text.utf8)
    return Base64URL.decode(bytes.span)
}
