internal import Cryptography

/// A row of another store that opens with this one's keys.
package enum ReceivedRow: Sendable {
    case token(Row, TransferStamp)
    case session(SessionRow, TransferStamp)

    /// The unique id whose token it is, for the observer of writes; nil for a session.
    package var id: [UInt8]? {
        if case .token(let row, _) = self { row.id } else { nil }
    }
}

extension RowCoder {
    /// Opens a row of another store, and thereby makes sure that it belongs into this one.
    package mutating func receive(_ row: TransferRow) throws(SealingError) -> ReceivedRow {
        let (key, misplaced) = (row.stamp.key.bytes, SealingError.tampered(keyNumber: row.keyNumber))
        var expected = RowKey()
        if let session = row.storedSession {
            let opened = try open(session)
            let index = try self.key(of: opened.session.user, into: &expected).identity
            guard try rowKey(of: opened.key) == key, expected.bytes == session.userKey else { throw misplaced }
            let received = SessionRow(
                key: key, id: opened.session.id, userKey: session.userKey, keyNumber: session.keyNumber,
                user: session.user, createdAt: session.createdAt, expiresAt: session.expiresAt,
                usedAt: session.usedAt, index: index)
            return .session(received, row.stamp)
        }
        let token = try token(of: row.value.bytes.span, keyNumber: row.keyNumber, key: key, times: row.times)
        let index = try self.key(of: token.id, into: &expected).identity
        guard expected.bytes == key else { throw misplaced }
        let received = Row(
            key: expected, value: row.value.bytes, keyNumber: row.keyNumber, times: row.times, id: token.id,
            index: index)
        return .token(received, row.stamp)
    }
}
