internal import TokenStore

/// A session of a user as a row of the table `session`.
///
/// All times are in seconds since 1970.
struct SessionRow: Sendable {
    /// The session's key, or its keyed hash in a sealed store.
    let key: [UInt8]
    let id: SessionID
    /// The key of the row that the user's token has.
    let userKey: [UInt8]
    /// Of the key that sealed `user`; 0 in the clear.
    let keyNumber: Int
    /// The user, or in a sealed store the sealed user and session key.
    let user: [UInt8]
    let createdAt: Int64
    let expiresAt: Int64
    var usedAt: Int64
    /// The index key that `key` was made with.
    let index: ObjectIdentifier

    /// For a statement's text: the columns in the order of `Column`.
    static let columns = "key, id, user_key, key_number, created_at, expires_at, used_at, number, user"

    /// Where a statement's columns are.
    enum Column {
        static let key: Int32 = 0
        static let id: Int32 = 1
        static let userKey: Int32 = 2
        static let keyNumber: Int32 = 3
        static let createdAt: Int32 = 4
        static let expiresAt: Int32 = 5
        static let usedAt: Int32 = 6
        static let number: Int32 = 7
        static let user: Int32 = 8
    }
}

/// A session's row as it was read.
struct StoredSession: Sendable {
    let key: [UInt8]
    /// 16 bytes, unless the file was manipulated.
    let id: [UInt8]
    let userKey: [UInt8]
    let keyNumber: Int
    let user: [UInt8]
    let createdAt: Int64
    let expiresAt: Int64
    let usedAt: Int64
    /// Larger than those of all sessions that were made before.
    let number: Int64

    /// Reads the current row of a statement that selects `SessionRow.columns`.
    init(_ select: SQLiteStatement) {
        key = select.blob(at: SessionRow.Column.key)
        id = select.blob(at: SessionRow.Column.id)
        userKey = select.blob(at: SessionRow.Column.userKey)
        keyNumber = select.integer(at: SessionRow.Column.keyNumber)
        createdAt = Int64(select.integer(at: SessionRow.Column.createdAt))
        expiresAt = Int64(select.integer(at: SessionRow.Column.expiresAt))
        usedAt = Int64(select.integer(at: SessionRow.Column.usedAt))
        number = Int64(select.integer(at: SessionRow.Column.number))
        user = select.blob(at: SessionRow.Column.user)
    }

    /// The times that a sealed user is bound to; that of the last use changes without a new seal.
    var times: RowTimes { RowTimes(writtenAt: createdAt, expiresAt: expiresAt) }
}

/// A session whose row was opened.
struct OpenedSession: Sendable {
    let session: UserSession
    let key: SessionKey
}
