/// A session of a user as a row of the table `session`.
///
/// All times are in seconds since 1970.
package struct SessionRow: Sendable {
    /// The session's key, or its keyed hash in a sealed store.
    package let key: [UInt8]
    package let id: SessionID
    /// The key of the row that the user's token has.
    package let userKey: [UInt8]
    /// Of the key that sealed `user`; 0 in the clear.
    package let keyNumber: Int
    /// The user, or in a sealed store the sealed user and session key.
    package let user: [UInt8]
    package let createdAt: Int64
    package let expiresAt: Int64
    package let usedAt: Int64
    /// The index key that `key` was made with.
    package let index: ObjectIdentifier
}

/// A session's row as it was read.
package struct StoredSession: Sendable {
    package let key: [UInt8]
    /// 16 bytes, unless the store was manipulated.
    package let id: [UInt8]
    package let userKey: [UInt8]
    package let keyNumber: Int
    package let user: [UInt8]
    package let createdAt: Int64
    package let expiresAt: Int64
    package let usedAt: Int64
    /// Larger than those of all sessions that were made before.
    package let number: Int64

    package init(
        key: [UInt8], id: [UInt8], userKey: [UInt8], keyNumber: Int, user: [UInt8], createdAt: Int64, expiresAt: Int64,
        usedAt: Int64, number: Int64
    ) {
        self.key = key
        self.id = id
        self.userKey = userKey
        self.keyNumber = keyNumber
        self.user = user
        self.createdAt = createdAt
        self.expiresAt = expiresAt
        self.usedAt = usedAt
        self.number = number
    }

    /// The times that a sealed user is bound to; that of the last use changes without a new seal.
    package var times: RowTimes { RowTimes(writtenAt: createdAt, expiresAt: expiresAt) }
}

/// A session whose row was opened.
package struct OpenedSession: Sendable {
    package let session: UserSession
    package let key: SessionKey
}
