internal import COpenSSL

/// Comparisons whose time tells nothing of the bytes.
package enum ConstantTime {
    /// Whether two secrets are equal.
    ///
    /// Their lengths are no secret.
    package static func areEqual(_ left: Span<UInt8>, _ right: Span<UInt8>) -> Bool {
        guard left.count == right.count else { return false }
        return unsafe left.withUnsafeBufferPointer { left in
            unsafe right.withUnsafeBufferPointer { right in
                unsafe left.isEmpty || CRYPTO_memcmp(left.baseAddress, right.baseAddress, left.count) == 0
            }
        }
    }
}
