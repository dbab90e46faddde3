import COpenSSL

/// HMAC-SHA-256 under one key (RFC 2104).
///
/// Used by one thread at a time.
@safe package final class KeyedHash {
    /// Bytes of a hash.
    package static let length = 32

    package let key: SecretKey
    private let context: OpaquePointer

    package init(_ key: SecretKey) {
        guard let algorithm = unsafe EVP_MAC_fetch(nil, "HMAC", nil) else { OpenSSLFailure.end("EVP_MAC_fetch") }
        defer { unsafe EVP_MAC_free(algorithm) }
        guard let context = unsafe EVP_MAC_CTX_new(algorithm) else { OpenSSLFailure.end("EVP_MAC_CTX_new") }
        unsafe self.context = unsafe context
        self.key = key
        let isStarted = key.withBytes { bytes in
            unsafe bytes.withUnsafeBufferPointer {
                unsafe copenssl_start_hmac_sha256(context, $0.baseAddress, $0.count)
            }
        }
        guard isStarted == 1 else { OpenSSLFailure.end("EVP_MAC_init") }
    }

    deinit {
        unsafe EVP_MAC_CTX_free(context)
    }

    /// Computes the hash of some bytes.
    ///
    /// - Parameters:
    ///   - bytes: The bytes to hash.
    ///   - hash: Replaced by the hash, `length` bytes.
    package func hash(_ bytes: Span<UInt8>, into hash: inout [UInt8]) {
        hash.removeAll(keepingCapacity: true)
        let isDone = unsafe hash.append(count: Self.length) { place in
            var length = 0
            // Without a key, this starts again with the same one.
            return unsafe EVP_MAC_init(context, nil, 0, nil) == 1
                && bytes.withUnsafeBufferPointer { unsafe EVP_MAC_update(context, $0.baseAddress, $0.count) } == 1
                && EVP_MAC_final(context, place, &length, Self.length) == 1 && length == Self.length
        }
        guard isDone else { OpenSSLFailure.end("EVP_MAC") }
    }

    /// The hash of some bytes, in an array of its own.
    package func mac(of bytes: Span<UInt8>) -> [UInt8] {
        var mac: [UInt8] = []
        hash(bytes, into: &mac)
        return mac
    }
}

/// SHA-256 (FIPS 180-4), with the context kept between calls.
///
/// Used by one thread at a time.
@safe package final class SHA256Digest {
    /// Bytes of a digest.
    package static let length = 32

    private let algorithm: OpaquePointer
    private let context: OpaquePointer

    package init() {
        guard let algorithm = unsafe EVP_MD_fetch(nil, "SHA256", nil) else { OpenSSLFailure.end("EVP_MD_fetch") }
        guard let context = unsafe EVP_MD_CTX_new() else { OpenSSLFailure.end("EVP_MD_CTX_new") }
        unsafe self.algorithm = algorithm
        unsafe self.context = context
    }

    deinit {
        unsafe EVP_MD_CTX_free(context)
        unsafe EVP_MD_free(algorithm)
    }

    /// Computes the digest of some bytes.
    ///
    /// - Parameters:
    ///   - bytes: The bytes to digest.
    ///   - digest: Replaced by the digest, `length` bytes.
    package func digest(_ bytes: Span<UInt8>, into digest: inout [UInt8]) {
        digest.removeAll(keepingCapacity: true)
        let isDone = unsafe digest.append(count: Self.length) { place in
            var length: UInt32 = 0
            return unsafe EVP_DigestInit_ex2(context, algorithm, nil) == 1
                && bytes.withUnsafeBufferPointer { unsafe EVP_DigestUpdate(context, $0.baseAddress, $0.count) } == 1
                && EVP_DigestFinal_ex(context, place, &length) == 1 && length == Self.length
        }
        guard isDone else { OpenSSLFailure.end("EVP_Digest") }
    }

    /// A single digest; for several, keeping a context is faster.
    package static func digest(of bytes: Span<UInt8>) -> [UInt8] {
        var digest: [UInt8] = []
        SHA256Digest().digest(bytes, into: &digest)
        return digest
    }
}

/// Comparisons whose duration tells nothing about the bytes.
package enum ConstantTime {
    /// Whether two secrets are equal.
    ///
    /// Their lengths are not secret.
    package static func areEqual(_ left: Span<UInt8>, _ right: Span<UInt8>) -> Bool {
        guard left.count == right.count else { return false }
        return unsafe left.withUnsafeBufferPointer { left in
            unsafe right.withUnsafeBufferPointer { right in
                unsafe left.isEmpty || CRYPTO_memcmp(left.baseAddress, right.baseAddress, left.count) == 0
            }
        }
    }
}

/// Failures of OpenSSL that no caller could answer.
///
/// OpenSSL's hashes, ciphers and random numbers fail only if there is no memory, or if its configuration turns them off. The
/// process then ends, as it does when an allocation fails in Swift, and its supervisor starts it again.
package enum OpenSSLFailure {
    /// Ends the process.
    ///
    /// - Parameter call: The call that failed.
    package static func end(_ call: StaticString) -> Never { fatalError("OpenSSL's \(call) failed") }
}
