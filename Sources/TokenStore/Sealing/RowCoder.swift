internal import Synchronization

/// A row as it is written.
struct Row: Sendable {
    /// The unique id, or its keyed hash in a sealed store.
    let key: [UInt8]
    /// The token info, or what `TokenSealer` makes of it.
    let value: [UInt8]
    /// The key that sealed the value; 0 for none.
    let keyNumber: Int
    /// When the token expires by its own account, in seconds since 1970; nil when it does not say.
    let expiresAt: Int64?
    /// In seconds since 1970; nil for the moment of the commit.
    var writtenAt: Int64?
    /// Leaves a row alone that was written later.
    var keepsNewer = false
    /// The id's number in the cache.
    let cacheHash: UInt64
    /// The index key of the ring that sealed it; nil in the clear.
    var ring: ObjectIdentifier?
}

/// A unique id with its token info.
package struct Token: Hashable, Sendable {
    package let id: [UInt8]
    package let info: [UInt8]

    package init(id: [UInt8], info: [UInt8]) {
        self.id = id
        self.info = info
    }
}

/// Turns tokens into rows and rows into tokens, as the store's sealing has it.
///
/// Used by one thread at a time.
struct RowCoder: ~Copyable {
    private let sealing: Sealing
    /// Nil for rows in the clear.
    private var sealer: TokenSealer?
    /// The version of `sealing` that the sealer was made for; 0 before the first.
    private var version: UInt64 = 0
    private var text: [UInt8] = []

    init(_ sealing: Sealing) {
        self.sealing = sealing
    }

    /// The key of an id's row.
    mutating func key(of id: [UInt8], into key: inout [UInt8]) throws(SealingError) {
        try refresh()
        if sealer == nil {
            key.removeAll(keepingCapacity: true)
            key.append(contentsOf: id)
        } else {
            try sealer?.rowKey(of: id.span, into: &key)
        }
    }

    mutating func row(of token: borrowing Token, writtenAt: Int64? = nil) throws(SealingError) -> Row {
        var key: [UInt8] = []
        try self.key(of: token.id, into: &key)
        let cacheHash = TokenCache.hash(of: token.id.span)
        let expiresAt = TokenExpiration.expiration(of: token.info.span)
        guard let value = try sealer?.seal(token.info.span, id: token.id.span, rowKey: key.span) else {
            return Row(
                key: key, value: token.info, keyNumber: 0, expiresAt: expiresAt, writtenAt: writtenAt,
                cacheHash: cacheHash
            )
        }
        let (number, ring) = (sealer?.ring.newest.number ?? 0, sealer?.ring.index.identity)
        return Row(
            key: key, value: value, keyNumber: number, expiresAt: expiresAt, writtenAt: writtenAt,
            cacheHash: cacheHash, ring: ring
        )
    }

    /// Appends the token info of a row.
    mutating func appendTokenInfo(
        of value: Span<UInt8>, keyNumber: Int, key: [UInt8], to tokenInfo: inout [UInt8]
    ) throws(SealingError) {
        // The row may have been sealed, after its key was looked up, with a key that was new then.
        try refresh()
        if sealer == nil {
            tokenInfo.append(span: value)
        } else {
            try sealer?.open(value, keyNumber: keyNumber, rowKey: key.span, into: &text)
            tokenInfo.append(contentsOf: text[TokenSealer.split(text).tokenInfo])
        }
    }

    /// The whole token of a row.
    mutating func token(of value: Span<UInt8>, keyNumber: Int, key: [UInt8]) throws(SealingError) -> Token {
        try refresh()
        guard sealer != nil else {
            var info: [UInt8] = []
            info.append(span: value)
            return Token(id: key, info: info)
        }
        try sealer?.open(value, keyNumber: keyNumber, rowKey: key.span, into: &text)
        let (id, info) = TokenSealer.split(text)
        return Token(id: Array(text[id]), info: Array(text[info]))
    }

    /// The number of the key that seals; 0 for rows in the clear.
    mutating func newestKeyNumber() throws(SealingError) -> Int {
        try refresh()
        return sealer?.ring.newest.number ?? 0
    }

    private mutating func refresh() throws(SealingError) {
        // Read before the ring: a change in between is then seen the next time at the latest.
        let current = sealing.version.load(ordering: .acquiring)
        guard current != version else { return }
        if let ring = sealing.current { sealer = try TokenSealer(ring) }
        version = current
    }
}
