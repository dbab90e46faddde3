internal import COpenSSL

/// The keys of a sealed store: one that makes row keys, and numbered ones that seal values.
///
/// The newest key seals, all of them open.
package struct KeyRing: Sendable {
    package struct NumberedKey: Sendable {
        /// From 1, never used twice.
        package let number: Int
        /// Seconds since 1970.
        package let createdAt: Int64
        package let key: SecretKey
        /// Whether every row that it has sealed is bound to its times and its number, so that others do not open; false for a
        /// key that an earlier version made, which may have sealed rows without that binding.
        package var bindsTimes = true
    }

    /// Makes a row's key of its unique id, and stays the same for the life of the store.
    package let index: SecretKey
    /// By number, never empty.
    package private(set) var keys: [NumberedKey]

    /// Numbers that a row can have: 32 bits of the associated data.
    package static let numbers = 1...Int(UInt32.max)

    /// - Parameter keys: At least one, of different numbers.
    package init(index: SecretKey, keys: [NumberedKey]) {
        precondition(!keys.isEmpty, "a key ring has a key")
        self.index = index
        self.keys = keys.sorted { $0.number < $1.number }
    }

    /// A ring with one new key.
    package static func random(createdAt: Int64) throws(SealingError) -> KeyRing {
        KeyRing(
            index: try .random(), keys: [NumberedKey(number: 1, createdAt: createdAt, key: try .random())]
        )
    }

    package var newest: NumberedKey { keys[keys.count - 1] }

    package func numberedKey(_ number: Int) -> NumberedKey? {
        keys.first { $0.number == number }
    }

    package func key(numbered number: Int) -> SecretKey? {
        numberedKey(number)?.key
    }

    /// The ring with one more key, which seals from then on.
    package func addingKey(createdAt: Int64) throws(SealingError) -> KeyRing {
        let added = NumberedKey(number: newest.number + 1, createdAt: createdAt, key: try .random())
        return KeyRing(index: index, keys: keys + [added])
    }

    /// The ring without a key, which must not be the newest.
    package func removingKey(numbered number: Int) -> KeyRing {
        precondition(number != newest.number, "the newest key stays")
        return KeyRing(index: index, keys: keys.filter { $0.number != number })
    }

    /// Tells one ring from another, and can be known to anybody: the index key's hash of a constant.
    package func identity() throws(SealingError) -> [UInt8] {
        var hash: [UInt8] = []
        try KeyedHash(index).hash(Array("token-cache key ring".utf8).span, into: &hash)
        return hash
    }
}
