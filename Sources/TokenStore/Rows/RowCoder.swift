import Cryptography
import Glibc
import Synchronization

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

    package init(key: RowKey, value: [UInt8], keyNumber: Int, times: RowTimes, id: [UInt8]) {
        self.key = key
        self.value = value
        self.keyNumber = keyNumber
        self.times = times
        self.id = id
    }
}

/// Encodes tokens as rows and decodes rows, by the keys of the store.
///
/// Used by one thread at a time.
package struct RowCoder: ~Copyable {
    let sealing: Sealing
    /// Nil until first used.
    private var hash: KeyedHash?
    /// Nil for rows in the clear.
    var sealer: TokenSealer?
    /// Makes the keys of sessions' rows; nil until first used.
    var sessionHash: KeyedHash?
    /// Makes the keys of sessions; nil until first used.
    var sessionDigest: SHA256Digest?
    /// The version of `sealing` that `hash` and `sealer` were made for.
    private var version: UInt64 = 0
    var text: [UInt8] = []

    package init(_ sealing: Sealing) {
        self.sealing = sealing
    }

    /// Makes the key that finds an id's row.
    package mutating func key(of id: [UInt8], into key: inout RowKey) {
        refresh().hash(id.span, into: &key.bytes)
        key.hashPrefix = RowKey.prefix(of: key.bytes)
        if sealer == nil { key.bytes = id }
    }

    /// - Parameter writtenAt: In seconds since 1970; nil for now.
    package mutating func row(of token: borrowing Token, writtenAt: Int64? = nil) throws(SealingError) -> Row {
        let expiresAt = TokenExpiration.expiration(of: token.info.span)
        return try row(of: token, RowTimes(writtenAt: writtenAt ?? Int64(time(nil)), expiresAt: expiresAt))
    }

    package mutating func row(of token: borrowing Token, _ times: RowTimes) throws(SealingError) -> Row {
        var key = RowKey()
        self.key(of: token.id, into: &key)
        if let refusal = sealing.refusal { throw refusal }
        let value = sealer?.seal(
            token.info.span, id: token.id.span, rowKey: key.bytes.span, times: times)
        return Row(
            key: key, value: value ?? token.info, keyNumber: sealer?.ring.active.number ?? 0, times: times,
            id: token.id
        )
    }

    /// Appends the token info of a row.
    package mutating func appendTokenInfo(
        of value: Span<UInt8>, keyNumber: Int, key: [UInt8], times: RowTimes, to tokenInfo: inout [UInt8]
    ) throws(SealingError) {
        // The row may have been sealed with a key that was added after its row key was made.
        _ = refresh()
        if sealer == nil {
            tokenInfo.append(span: value)
        } else {
            try sealer?.open(value, keyNumber: keyNumber, rowKey: key.span, times: times, into: &text)
            tokenInfo.append(contentsOf: text[TokenSealer.split(text).tokenInfo])
        }
    }

    /// The whole token of a row.
    ///
    /// - Parameters:
    ///   - value: The row's value.
    ///   - keyNumber: The key that it was sealed with.
    ///   - key: The row's key.
    ///   - times: The row's times.
    package mutating func token(
        of value: Span<UInt8>, keyNumber: Int, key: [UInt8], times: RowTimes
    ) throws(SealingError) -> Token {
        _ = refresh()
        guard sealer != nil else {
            var info: [UInt8] = []
            info.append(span: value)
            return Token(id: key, info: info)
        }
        try sealer?.open(value, keyNumber: keyNumber, rowKey: key.span, times: times, into: &text)
        let (id, info) = TokenSealer.split(text)
        return Token(id: Array(text[id]), info: Array(text[info]))
    }

    /// The `RowKey.hashPrefix` that belongs to a row's key.
    package mutating func hashPrefix(of key: [UInt8]) -> UInt64 {
        let hash = refresh()
        guard sealer == nil else { return RowKey.prefix(of: key) }
        hash.hash(key.span, into: &text)
        return RowKey.prefix(of: text)
    }

    /// The number of the key that seals rows now; 0 in the clear.
    package mutating func activeKeyNumber() -> Int {
        _ = refresh()
        return sealer?.ring.active.number ?? 0
    }

    /// Takes over the store's present keys; returns what hashes ids.
    mutating func refresh() -> KeyedHash {
        // Read before the keys, so that a change in between is noticed by the next call at the latest.
        let current = sealing.version.load(ordering: .acquiring)
        if let hash, current == version { return hash }
        let keys = sealing.keys
        let new = KeyedHash(keys.index)
        sealer = if let ring = keys.ring { TokenSealer(ring) } else { nil }
        (hash, sessionHash, version) = (new, nil, current)
        return new
    }
}
