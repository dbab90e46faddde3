/// The key that finds a row.
package struct RowKey: Sendable {
    /// The unique id, or its keyed hash in a sealed store.
    package var bytes: [UInt8]
    /// The first 8 bytes of the id's keyed hash, big endian; evenly distributed, also in the clear.
    package var hashPrefix: UInt64

    package init(bytes: [UInt8] = [], hashPrefix: UInt64 = 0) {
        self.bytes = bytes
        self.hashPrefix = hashPrefix
    }

    /// The `hashPrefix` of a keyed hash.
    ///
    /// - Parameter hash: Missing bytes, as of a key in a store that was manipulated, count as 0.
    package static func prefix(of hash: [UInt8]) -> UInt64 {
        var prefix: UInt64 = 0
        for index in 0..<8 { prefix = prefix << 8 | UInt64(index < hash.count ? hash[index] : 0) }
        return prefix
    }
}

/// A row to be written.
package struct Row: Sendable {
    package let key: RowKey
    /// The token info, sealed by `TokenSealer` in a sealed store.
    package let value: [UInt8]
    /// The number of the key that sealed the value; 0 in the clear.
    package let keyNumber: Int
    /// Authenticated together with a sealed value.
    package var times: RowTimes
    /// Whether a stored row that was written later is kept.
    package var keepsNewer = false
    /// The unique id, for the observer of writes.
    package let id: [UInt8]
    /// The index key that `key` was made with.
    package let index: ObjectIdentifier

    package init(
        key: RowKey, value: [UInt8], keyNumber: Int, times: RowTimes, id: [UInt8], index: ObjectIdentifier
    ) {
        self.key = key
        self.value = value
        self.keyNumber = keyNumber
        self.times = times
        self.id = id
        self.index = index
    }
}

extension Sealing.Acceptance {
    package func accepts(_ row: Row) -> Bool {
        accepts(index: row.index, keyNumber: row.keyNumber)
    }
}
