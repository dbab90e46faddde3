internal import COpenSSL

/// A public key that verifies the signatures of one algorithm.
///
/// Any thread, several at once: OpenSSL only reads the key, and each verification has a context of its own.
@safe final class PublicKey: Sendable {
    let algorithm: JWTAlgorithm
    /// The key as it was given, for comparisons.
    let encoded: [UInt8]
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
    ///   - algorithm: One for this kind of key.
    init?(_ encoded: [UInt8], _ algorithm: JWTAlgorithm) {
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
        self.encoded = encoded
        self.algorithm = algorithm
        signatureLength =
            switch algorithm.keyType {
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

    /// Whether a signature, as RFC 7518 (sections 3.3 to 3.5) and RFC 8037 (section 3.1) write it, is this key's of some bytes.
    func verify(_ signature: Span<UInt8>, of signed: Span<UInt8>) -> Bool {
        // Each signature has exactly one length. OpenSSL asks for it too, except that it takes ECDSA's in DER.
        guard signature.count == signatureLength else { return false }
        switch algorithm.keyType {
        case .rsa, .ed25519: return verifyEncoded(signature, of: signed)
        case .ellipticCurve(let curve):
            // OpenSSL refuses numbers that are 0 or not below the order of the curve's base point.
            let der = DER.sequence(
                DER.integer(signature.bytes(0..<curve.length)),
                DER.integer(signature.bytes(curve.length..<2 * curve.length))
            )
            return verifyEncoded(der.span, of: signed)
        }
    }

    /// - Parameter signature: In OpenSSL's form.
    private func verifyEncoded(_ signature: Span<UInt8>, of signed: Span<UInt8>) -> Bool {
        // An error that stayed in this thread's queue would be taken for one of a TLS session.
        defer { if ERR_peek_error() != 0 { ERR_clear_error() } }
        guard let context = unsafe EVP_MD_CTX_new() else { return false }
        defer { unsafe EVP_MD_CTX_free(context) }
        var parameters: OpaquePointer?
        guard unsafe EVP_DigestVerifyInit_ex(context, &parameters, algorithm.digest, nil, nil, key, nil) == 1,
            unsafe !algorithm.isPSS || Self.usePSS(parameters)
        else { return false }
        return unsafe signature.withUnsafeBufferPointer { signature in
            unsafe signed.withUnsafeBufferPointer { signed in
                unsafe EVP_DigestVerify(
                    context, signature.baseAddress, signature.count, signed.baseAddress, signed.count
                ) == 1
            }
        }
    }

    /// The hash is that of the mask too, which is OpenSSL's default, and the salt is as long as the hash (RFC 7518,
    /// section 3.5).
    private static func usePSS(_ parameters: OpaquePointer?) -> Bool {
        unsafe EVP_PKEY_CTX_set_rsa_padding(parameters, RSA_PKCS1_PSS_PADDING) == 1
            && EVP_PKEY_CTX_set_rsa_pss_saltlen(parameters, RSA_PSS_SALTLEN_DIGEST) == 1
    }
}
