internal import COpenSSL

/// SHA-256 (FIPS 180-4), with the context kept between calls.
///
/// Used by one thread at a time.
@safe package final class SHA256Digest {
    /// Bytes of a digest.
    package static let length = 32

    private let algorithm: OpaquePointer
    private let context: OpaquePointer

    package init() throws(CryptographyError) {
        guard let algorithm = unsafe EVP_MD_fetch(nil, "SHA256", nil) else { throw .library("EVP_MD_fetch") }
        guard let context = unsafe EVP_MD_CTX_new() else {
            unsafe EVP_MD_free(algorithm)
            throw .library("EVP_MD_CTX_new")
        }
        unsafe self.algorithm = algorithm
        unsafe self.context = context
    }

    deinit {
        unsafe EVP_MD_CTX_free(context)
        unsafe EVP_MD_free(algorithm)
    }

    /// The digest of some bytes.
    ///
    /// - Parameters:
    ///   - bytes: The bytes to digest.
    ///   - digest: Replaced by the digest, `length` bytes.
    package func digest(_ bytes: Span<UInt8>, into digest: inout [UInt8]) throws(CryptographyError) {
        digest.removeAll(keepingCapacity: true)
        let isDone = unsafe digest.append(count: Self.length) { place in
            var length: UInt32 = 0
            return unsafe EVP_DigestInit_ex2(context, algorithm, nil) == 1
                && bytes.withUnsafeBufferPointer { unsafe EVP_DigestUpdate(context, $0.baseAddress, $0.count) } == 1
                && EVP_DigestFinal_ex(context, place, &length) == 1 && length == Self.length
        }
        guard isDone else { throw .library("EVP_Digest") }
    }

    /// One digest; a context that is kept is faster.
    package static func digest(of bytes: Span<UInt8>) throws(CryptographyError) -> [UInt8] {
        var digest: [UInt8] = []
        try SHA256Digest().digest(bytes, into: &digest)
        return digest
    }
}
