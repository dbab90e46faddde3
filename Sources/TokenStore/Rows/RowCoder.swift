import Cryptography
import Glibc
import Synchronization

/// The key that finds a row.
package struct RowKey: Sendable {
    /// The keyed hash of the unique id.
    package var bytes: [UInt8]

    package init(bytes: [UInt8] = []) {
        self.bytes = bytes
    }

    /// The first 8 bytes, big endian; evenly distributed.
    ///
    /// Missing bytes, as of a key in a store that was manipulated, count as 0.
    package var hashPrefix: UInt64 {
        var prefix: UInt64 = 0
        for index in 0..<8 { prefix = prefix << 8 | UInt64(index < bytes.count ? bytes[index] : 0) }
        return prefix
    }
}

/// A row to be written.
package struct Row: Sendable {
    package let key: RowKey
    /// The token info, sealed by `TokenSealer`.
    package let value: [UInt8]
    /// The number of the key that sealed the value.
    package let keyNumber: Int
    /// Authenticated together with the value.
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
    /// The version of `sealing` that `hash` and `sealer` were made for.
    private var version: UInt64
    private var hash: KeyedHash
    var sealer: TokenSealer
    /// Makes the keys of sessions' rows; nil until first used.
    var sessionHash: KeyedHash?
    /// Makes the keys of sessions; nil until first used.
    var sessionDigest: SHA256Digest?
    var text: [UInt8] = []

    package init(_ sealing: Sealing) {
        self.sealing = sealing
        // Read before the ring, so that a change in between is noticed by the next call at the latest.
        version = sealing.version.load(ordering: .acquiring)
        let ring = sealing.ring
        hash = KeyedHash(ring.index)
        sealer = TokenSealer(ring)
    }

    /// Makes the key that finds an id's row.
    package mutating func key(of id: [UInt8], into key: inout RowKey) {
        refresh().hash(id.span, into: &key.bytes)
    }

    /// - Parameter writtenAt: In seconds since 1970; nil for now.
    package mutating func row(of token: borrowing Token, writtenAt: Int64? = nil) throws(SealingError) -> Row {
        let expiresAt = TokenExpiration.expiration(of: token.info.span)
        return try row(of: token, RowTimes(writtenAt: writtenAt ?? Int64(time(nil)), expiresAt: expiresAt))
    }

    mutating func row(of token: borrowing Token, _ times: RowTimes) throws(SealingError) -> Row {
        var key = RowKey()
        self.key(of: token.id, into: &key)
        if let refusal = sealing.refusal { throw refusal }
        let value = sealer.seal(token.info.span, id: token.id.span, rowKey: key.bytes.span, times: times)
        return Row(key: key, value: value, keyNumber: sealer.ring.active.number, times: times, id: token.id)
    }

    /// Appends the token info of a row.
    package mutating func appendTokenInfo(
        of value: Span<UInt8>, keyNumber: Int, key: [UInt8], times: RowTimes, to tokenInfo: inout [UInt8]
    ) throws(SealingError) {
        try open(value, keyNumber: keyNumber, key: key, times: times)
        tokenInfo.append(contentsOf: text[TokenSealer.split(text).tokenInfo])
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
        try open(value, keyNumber: keyNumber, key: key, times: times)
        let (id, info) = TokenSealer.split(text)
        return Token(id: Array(text[id]), info: Array(text[info]))
    }

    /// Opens a token's row; `text` holds its text afterwards.
    mutating func open(
        _ value: Span<UInt8>, keyNumber: Int, key: [UInt8], times: RowTimes
    ) throws(SealingError) {
        // The row may have been sealed with a key that was added after its row key was made.
        _ = refresh()
        try sealer.open(value, keyNumber: keyNumber, rowKey: key.span, times: times, into: &text)
    }

    /// Seals the text of the row that was opened last once more.
    ///
    /// - Parameter place: The row's key, or `SessionRow.place`.
    /// - Returns: The value, and the number of the key that it is sealed with.
    mutating func sealAgain(_ place: [UInt8], _ times: RowTimes) throws(SealingError) -> (
        value: [UInt8], keyNumber: Int
    ) {
        if let refusal = sealing.refusal { throw refusal }
        let (text, (id, info)) = (text, TokenSealer.split(text))
        let value = sealer.seal(
            text.span.extracting(info), id: text.span.extracting(id), rowKey: place.span, times: times)
        return (value, presentKeyNumber)
    }

    /// The number of the key that seals, as of the last row.
    var presentKeyNumber: Int { sealer.ring.active.number }

    /// The number of the key that seals rows now.
    package mutating func activeKeyNumber() -> Int {
        _ = refresh()
        return presentKeyNumber
    }

    /// Takes over the store's present keys; returns what hashes ids.
    mutating func refresh() -> KeyedHash {
        if sealing.version.load(ordering: .acquiring) != version { self = RowCoder(sealing) }
        return hash
    }
}
