internal import COpenSSL

/// HMAC-SHA-256 under one key (RFC 2104).
///
/// Used by one thread at a time.
@safe package final class KeyedHash {
    /// Bytes of a hash.
    package static let length = 32

    package let key: SecretKey
    private let context: OpaquePointer

    package init(_ key: SecretKey) throws(CryptographyError) {
        guard let algorithm = unsafe EVP_MAC_fetch(nil, "HMAC", nil) else { throw .library("EVP_MAC_fetch") }
        defer { unsafe EVP_MAC_free(algorithm) }
        guard let context = unsafe EVP_MAC_CTX_new(algorithm) else { throw .library("EVP_MAC_CTX_new") }
        unsafe self.context = unsafe context
        self.key = key
        let isStarted = key.withBytes { bytes in
            unsafe bytes.withUnsafeBufferPointer {
                unsafe copenssl_start_hmac_sha256(context, $0.baseAddress, $0.count)
            }
        }
        guard isStarted == 1 else { throw .library("EVP_MAC_init") }
    }

    deinit {
        unsafe EVP_MAC_CTX_free(context)
    }

    /// The hash of some bytes.
    ///
    /// - Parameters:
    ///   - bytes: The bytes to hash.
    ///   - hash: Replaced by the hash, `length` bytes.
    package func hash(_ bytes: Span<UInt8>, into hash: inout [UInt8]) throws(CryptographyError) {
        hash.removeAll(keepingCapacity: true)
        let isDone = unsafe hash.append(count: Self.length) { place in
            var length = 0
            // Without a key, this restarts with the present one.
            return unsafe EVP_MAC_init(context, nil, 0, nil) == 1
                && bytes.withUnsafeBufferPointer { unsafe EVP_MAC_update(context, $0.baseAddress, $0.count) } == 1
                && EVP_MAC_final(context, place, &length, Self.length) == 1 && length == Self.length
        }
        guard isDone else { throw .library("EVP_MAC") }
    }
}
