package import Cryptography

extension KeyedHash {
    package convenience init(of key: SecretKey) throws(SealingError) {
        do throws(CryptographyError) {
            try self.init(key)
        } catch {
            throw SealingError(error)
        }
    }

    /// The hash of some bytes.
    ///
    /// - Parameters:
    ///   - bytes: The bytes to hash.
    ///   - hash: Replaced by the hash, `length` bytes.
    package func hash(_ bytes: [UInt8], into hash: inout [UInt8]) throws(SealingError) {
        do throws(CryptographyError) {
            try self.hash(bytes.span, into: &hash)
        } catch {
            throw SealingError(error)
        }
    }
}
