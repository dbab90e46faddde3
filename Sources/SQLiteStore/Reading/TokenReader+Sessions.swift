internal import Glibc
internal import Synchronization
internal import TokenStore

/// A reader's statements about sessions.
struct SessionStatements {
    fileprivate let byKey: SQLiteStatement
    fileprivate let byUser: SQLiteStatement

    fileprivate init(_ connection: SQLiteConnection) throws(SQLiteError) {
        let all = "SELECT \(SessionRow.columns) FROM session WHERE"
        byKey = try SQLiteStatement("\(all) key = ?1 AND expires_at > ?2", on: connection)
        byUser = try SQLiteStatement("\(all) user_key = ?1 AND expires_at > ?2 ORDER BY number", on: connection)
    }
}

/// Sessions, with the reader's connection.
extension TokenReader {
    func findSession(_ key: SessionKey) throws(StoreError) -> FoundSession {
        let rowKey = try sealing { () throws(SealingError) in try coder.rowKey(of: key) }
        guard let row = try rows(\.byKey, rowKey).first else { return .nothing }
        let opened = try opening(row)
        // A row that is found by the hash of another key was tampered with.
        guard opened.key == key else { throw .sealing(.tampered(keyNumber: row.keyNumber)) }
        return .found(opened.session)
    }

    /// The sessions of a user, the oldest first.
    func sessions(of user: [UInt8]) throws(StoreError) -> [UserSession] {
        var key = RowKey()
        _ = try sealing { () throws(SealingError) in try coder.key(of: user, into: &key) }
        var sessions: [UserSession] = []
        for row in try rows(\.byUser, key.bytes) { sessions.append(try opening(row).session) }
        return sessions
    }

    /// The rows that a statement finds by some bytes, except those that have expired.
    private func rows(
        _ statement: KeyPath<SessionStatements, SQLiteStatement>, _ bytes: [UInt8]
    ) throws(StoreError) -> [StoredSession] {
        do throws(SQLiteError) {
            if sessions == nil { sessions = try SessionStatements(connection) }
            guard let select = sessions?[keyPath: statement] else { return [] }
            try select.bind(Int64(time(nil)), at: 2)
            return try select.withBinding(bytes, at: 1) { () throws(SQLiteError) in
                var rows: [StoredSession] = []
                while try select.step() { rows.append(StoredSession(select)) }
                return rows
            }
        } catch {
            throw .read(StoreFault(error))
        }
    }

    private func opening(_ row: StoredSession) throws(StoreError) -> OpenedSession {
        do throws(StoreError) {
            return try sealing { () throws(SealingError) in try coder.open(row) }
        } catch {
            state.unreadableCount.add(1, ordering: .relaxed)
            throw error
        }
    }

    private func sealing<Result>(_ body: () throws(SealingError) -> Result) throws(StoreError) -> Result {
        do throws(SealingError) {
            return try body()
        } catch {
            throw .sealing(error)
        }
    }
}
