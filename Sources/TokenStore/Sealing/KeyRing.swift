package import Cryptography

/// The keys of a sealed store: the index key, which makes row keys, and numbered keys, which seal values.
///
/// The newest key seals; all of them open.
package struct KeyRing: Sendable {
    package struct NumberedKey: Sendable {
        /// From 1, never used twice.
        package let number: Int
        /// Seconds since 1970.
        package let createdAt: Int64
        package let key: SecretKey
        /// Whether every row that the key has sealed is bound to its times and its number; false for a key of an
        /// earlier version, which may have sealed rows without that.
        package var bindsTimes = true
    }

    /// Makes row keys from unique ids; never changes during the life of a store.
    package let index: SecretKey
    /// In the order of their numbers, never empty.
    package private(set) var keys: [NumberedKey]

    /// The possible numbers: the associated data has 32 bits for them.
    package static let numbers = 1...Int(UInt32.max)

    /// - Parameter keys: At least one, of different numbers.
    package init(index: SecretKey, keys: [NumberedKey]) {
        precondition(!keys.isEmpty, "a key ring has a key")
        self.index = index
        self.keys = keys.sorted { $0.number < $1.number }
    }

    /// A ring with one new key.
    package static func random(createdAt: Int64) throws(SealingError) -> KeyRing {
        KeyRing(index: try newKey(), keys: [NumberedKey(number: 1, createdAt: createdAt, key: try newKey())])
    }

    package var newest: NumberedKey { keys[keys.count - 1] }

    package func numberedKey(_ number: Int) -> NumberedKey? {
        keys.first { $0.number == number }
    }

    package func key(numbered number: Int) -> SecretKey? {
        numberedKey(number)?.key
    }

    /// The ring with one more key, which then seals.
    package func addingKey(createdAt: Int64) throws(SealingError) -> KeyRing {
        let added = NumberedKey(number: newest.number + 1, createdAt: createdAt, key: try Self.newKey())
        return KeyRing(index: index, keys: keys + [added])
    }

    /// The ring without a key, which must not be the newest.
    package func removingKey(numbered number: Int) -> KeyRing {
        precondition(number != newest.number, "the newest key stays")
        return KeyRing(index: index, keys: keys.filter { $0.number != number })
    }

    /// Identifies the ring and is no secret: the index key's hash of a constant.
    package func identity() throws(SealingError) -> [UInt8] {
        do throws(CryptographyError) {
            var hash: [UInt8] = []
            try KeyedHash(index).hash(Array("token-cache key ring".utf8).span, into: &hash)
            return hash
        } catch {
            throw SealingError(error)
        }
    }

    private static func newKey() throws(SealingError) -> SecretKey {
        do throws(CryptographyError) {
            return try .random()
        } catch {
            throw SealingError(error)
        }
    }
}
