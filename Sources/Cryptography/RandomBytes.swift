internal import COpenSSL

/// Random bytes of OpenSSL's generators, which the system's seeds.
package enum RandomBytes {
    /// For keys and other secrets: of a generator whose output is never seen elsewhere (RAND_priv_bytes(3)).
    package static func secret(_ count: Int) throws(CryptographyError) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: count)
        guard unsafe RAND_priv_bytes(&bytes, Int32(count)) == 1 else { throw .library("RAND_priv_bytes") }
        return bytes
    }

    /// For names and numbers that others get to see.
    package static func published(_ count: Int) throws(CryptographyError) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: count)
        guard unsafe RAND_bytes(&bytes, Int32(count)) == 1 else { throw .library("RAND_bytes") }
        return bytes
    }
}
