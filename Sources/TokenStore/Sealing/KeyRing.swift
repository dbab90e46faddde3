internal import COpenSSL

/// The keys of a sealed store: one that makes row keys, and numbered ones that seal values.
///
/// The newest key seals, all of them open.
package struct KeyRing: Sendable {
    struct NumberedKey: Sendable {
        /// From 1, never used twice.
        let number: Int
        /// Seconds since 1970.
        let createdAt: Int64
        let key: SecretKey
        /// Whether every row that it has sealed is bound to its times and its number, so that others do not open; false for a
        /// key that an earlier version made, which may have sealed rows without that binding.
        var bindsTimes = true
    }

    /// Makes a row's key of its unique id, and stays the same for the life of the store.
    let index: SecretKey
    /// By number, never empty.
    private(set) var keys: [NumberedKey]

    /// Numbers that a row can have: 32 bits of the associated data.
    static let numbers = 1...Int(UInt32.max)

    /// - Parameter keys: At least one, of different numbers.
    init(index: SecretKey, keys: [NumberedKey]) {
        precondition(!keys.isEmpty, "a key ring has a key")
        self.index = index
        self.keys = keys.sorted { $0.number < $1.number }
    }

    /// A ring with one new key.
    static func random(createdAt: Int64) throws(SealingError) -> KeyRing {
        KeyRing(
            index: try .random(), keys: [NumberedKey(number: 1, createdAt: createdAt, key: try .random())]
        )
    }

    var newest: NumberedKey { keys[keys.count - 1] }

    func numberedKey(_ number: Int) -> NumberedKey? {
        keys.first { $0.number == number }
    }

    func key(numbered number: Int) -> SecretKey? {
        numberedKey(number)?.key
    }

    /// The ring with one more key, which seals from then on.
    func addingKey(createdAt: Int64) throws(SealingError) -> KeyRing {
        let added = NumberedKey(number: newest.number + 1, createdAt: createdAt, key: try .random())
        return KeyRing(index: index, keys: keys + [added])
    }

    /// The ring without a key, which must not be the newest.
    func removingKey(numbered number: Int) -> KeyRing {
        precondition(number != newest.number, "the newest key stays")
        return KeyRing(index: index, keys: keys.filter { $0.number != number })
    }

    /// Tells one ring from another, and can be known to anybody: the index key's hash of a constant.
    func identity() throws(SealingError) -> [UInt8] {
        var hash: [UInt8] = []
        try KeyedHash(index).hash(Array("token-cache key ring".utf8).span, into: &hash)
        return hash
    }
}
