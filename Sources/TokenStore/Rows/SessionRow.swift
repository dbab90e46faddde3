import Cryptography

/// A session of a user as a row of the table `session`.
///
/// All times are in seconds since 1970.
package struct SessionRow: Sendable {
    /// The keyed hash of the session's key.
    package let key: [UInt8]
    /// 16 bytes, unless the store was manipulated.
    package let id: [UInt8]
    /// The key of the row of the user's token.
    package let userKey: [UInt8]
    /// The number of the key that sealed `user`.
    package let keyNumber: Int
    /// The sealed user and session key.
    package let user: [UInt8]
    package let createdAt: Int64
    package let expiresAt: Int64
    package let usedAt: Int64
    /// Larger than the numbers of all earlier sessions.
    package var number: Int64

    /// The times that a sealed user is bound to; the time of the last use changes without sealing the user again.
    var times: RowTimes { RowTimes(writtenAt: createdAt, expiresAt: expiresAt) }
    /// What a sealed user is bound to in the place of a token's row key.
    var place: [UInt8] { key + id + userKey }

    /// The session, with what the row holds sealed.
    func opened(user: [UInt8], _ key: [UInt8]) throws(SealingError) -> OpenedSession {
        guard id.count == SessionID.length, key.count == SessionKey.length else { throw .malformed }
        let session = UserSession(
            id: SessionID(id), user: user, createdAt: createdAt, expiresAt: expiresAt, lastUsedAt: usedAt)
        return OpenedSession(session: session, key: SessionKey(key.span))
    }
}

extension SessionRow {
    /// Reads a row of the columns key, id, user key, key number, created at, expires at, used at, number, and user.
    ///
    /// - Parameters:
    ///   - bytes: The bytes of a column.
    ///   - number: The number in a column.
    package init(bytes: (Int) -> [UInt8], number: (Int) -> Int64) {
        self.init(
            key: bytes(0), id: bytes(1), userKey: bytes(2), keyNumber: Int(number(3)), user: bytes(8),
            createdAt: number(4), expiresAt: number(5), usedAt: number(6), number: number(7))
    }
}

/// A session whose row was opened.
package struct OpenedSession: Sendable {
    package let session: UserSession
    package let key: SessionKey
}

/// Rows of sessions.
///
/// A session's key is the SHA-256 of a label and its secret, which has 256 random bits, so that nobody can find the
/// secret of a key. The row's key is the HMAC of the session's key under a key that is derived from the index key. The
/// session's key is sealed together with the user, so that the session can be copied to a store with another ring.
///
/// A sealed user is bound to the whole row except the time of the last use: the associated data are those of a token's
/// row, but with the session's row key, id and user key (80 bytes) instead of the token's row key (32 bytes).
extension RowCoder {
    /// The label before the secret; it ends with a NUL, which no unique id of a client contains.
    private static let sessionLabel = Array("token-cache session\0".utf8)
    /// Its HMAC under the index key is the key that makes the row keys of sessions.
    private static let sessionKeyLabel = Array("token-cache session keys\0".utf8)

    /// The key of a session.
    package mutating func sessionKey(of secret: Span<UInt8>) -> SessionKey {
        var (text, digest) = (Self.sessionLabel, [UInt8]())
        defer { SecretKey.wipe(&text) }
        text.reserveCapacity(text.count + secret.count)
        text.append(span: secret)
        if sessionDigest == nil { sessionDigest = SHA256Digest() }
        sessionDigest?.digest(text.span, into: &digest)
        return SessionKey(digest.span)
    }

    /// The key of a session's row.
    package mutating func rowKey(of session: SessionKey) -> [UInt8] {
        var key: [UInt8] = []
        hashOfKeys().hash(session.bytes.span, into: &key)
        return key
    }

    /// Makes the row of a session.
    package mutating func row(
        of session: UserSession, _ key: SessionKey, number: Int64 = 0
    ) throws(SealingError) -> SessionRow {
        var user = RowKey()
        self.key(of: session.user, into: &user)
        if let refusal = sealing.refusal { throw refusal }
        let rowKey = rowKey(of: key)
        let times = RowTimes(writtenAt: session.createdAt, expiresAt: session.expiresAt)
        let sealed = sealer.seal(
            key.bytes.span, id: session.user.span, rowKey: (rowKey + session.id.bytes + user.bytes).span,
            times: times)
        return SessionRow(
            key: rowKey, id: session.id.bytes, userKey: user.bytes, keyNumber: sealer.ring.active.number,
            user: sealed, createdAt: session.createdAt, expiresAt: session.expiresAt,
            usedAt: session.lastUsedAt, number: number
        )
    }

    /// Opens a session's row.
    package mutating func open(_ row: SessionRow) throws(SealingError) -> OpenedSession {
        _ = refresh()
        guard row.id.count == SessionID.length, row.key.count == SessionKey.length else { throw .malformed }
        try sealer.open(
            row.user.span, keyNumber: row.keyNumber, rowKey: row.place.span,
            times: row.times, into: &text)
        let (user, key) = TokenSealer.split(text)
        return try row.opened(user: Array(text[user]), Array(text[key]))
    }

    /// The hash that makes row keys of sessions.
    private mutating func hashOfKeys() -> KeyedHash {
        let hash = refresh()
        if let sessionHash { return sessionHash }
        var key: [UInt8] = []
        defer { SecretKey.wipe(&key) }
        hash.hash(Self.sessionKeyLabel.span, into: &key)
        let made = KeyedHash(SecretKey(key.span))
        sessionHash = made
        return made
    }
}
