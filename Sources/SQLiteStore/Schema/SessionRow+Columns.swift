internal import TokenStore

/// A session's row in the table `session`.
extension SessionRow {
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

extension StoredSession {
    /// Reads the current row of a statement that selects `SessionRow.columns`.
    init(_ select: SQLiteStatement) {
        self.init(
            key: select.blob(at: SessionRow.Column.key),
            id: select.blob(at: SessionRow.Column.id),
            userKey: select.blob(at: SessionRow.Column.userKey),
            keyNumber: select.integer(at: SessionRow.Column.keyNumber),
            user: select.blob(at: SessionRow.Column.user),
            createdAt: Int64(select.integer(at: SessionRow.Column.createdAt)),
            expiresAt: Int64(select.integer(at: SessionRow.Column.expiresAt)),
            usedAt: Int64(select.integer(at: SessionRow.Column.usedAt)),
            number: Int64(select.integer(at: SessionRow.Column.number))
        )
    }
}
