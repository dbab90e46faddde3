package import Cryptography

/// The keys of a sealed store: the index key, which makes row keys, and numbered keys, which seal values.
///
/// One of the keys seals: the newest, unless a shared store says otherwise. All of them open.
package struct KeyRing: Sendable {
    package struct NumberedKey: Sendable {
        /// From 1, never used twice.
        package let number: Int
        /// Seconds since 1970.
        package let createdAt: Int64
        package let key: SecretKey

        /// Tells this key from another one of its number, and is no secret: the beginning of the key's hash of a constant, in
        /// hexadecimal.
        package func fingerprint() throws(SealingError) -> String {
            KeyRing.fingerprint(try KeyRing.hash(of: "token-cache sealing key", under: key))
        }
    }

    /// Makes row keys from unique ids; never changes during the life of a store.
    package let index: SecretKey
    /// In the order of their numbers, never empty.
    package private(set) var keys: [NumberedKey]
    private let activeNumber: Int

    /// The possible numbers: the associated data has 32 bits for them.
    package static let numbers = 1...Int(UInt32.max)

    /// - Parameters:
    ///   - index: The index key.
    ///   - keys: At least one, of different numbers.
    ///   - active: The number of the key that seals; nil for the newest.
    package init(index: SecretKey, keys: [NumberedKey], active: Int? = nil) {
        precondition(!keys.isEmpty, "a key ring has a key")
        self.index = index
        self.keys = keys.sorted { $0.number < $1.number }
        activeNumber = active ?? self.keys[keys.count - 1].number
        precondition(keys.contains { $0.number == activeNumber }, "the key that seals is in the ring")
    }

    /// A ring with one new key.
    package static func random(createdAt: Int64) throws(SealingError) -> KeyRing {
        KeyRing(index: try newKey(), keys: [NumberedKey(number: 1, createdAt: createdAt, key: try newKey())])
    }

    package var newest: NumberedKey { keys[keys.count - 1] }

    /// The key that seals.
    package var active: NumberedKey { numberedKey(activeNumber) ?? newest }

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

    /// The ring with another key that seals.
    package func activating(_ number: Int) -> KeyRing {
        KeyRing(index: index, keys: keys, active: number)
    }

    /// The ring without a key, which must be neither the newest nor the one that seals.
    package func removingKey(numbered number: Int) -> KeyRing {
        precondition(number != newest.number && number != activeNumber, "the newest key and the one that seals stay")
        return KeyRing(index: index, keys: keys.filter { $0.number != number }, active: activeNumber)
    }

    /// Identifies the ring and is no secret: the index key's hash of a constant.
    package func identity() throws(SealingError) -> [UInt8] {
        try Self.hash(of: "token-cache key ring", under: index)
    }

    /// The beginning of a hash that identifies a ring or a key, in hexadecimal.
    package static func fingerprint(_ hash: [UInt8]) -> String {
        hash.prefix(8).map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }

    private static func hash(of label: String, under key: SecretKey) throws(SealingError) -> [UInt8] {
        var hash: [UInt8] = []
        try KeyedHash(of: key).hash(Array(label.utf8), into: &hash)
        return hash
    }

    private static func newKey() throws(SealingError) -> SecretKey {
        do throws(CryptographyError) {
            return try .random()
        } catch {
            throw SealingError(error)
        }
    }
}
