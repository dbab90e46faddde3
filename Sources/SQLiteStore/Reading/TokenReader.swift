import Glibc
import Synchronization
import TokenStore

/// A read-only connection that finds and decrypts tokens.
///
/// Used by one thread at a time.
final class TokenReader {
    let connection: SQLiteConnection
    private let select: SQLiteStatement
    private let sessionByKey: SQLiteStatement
    private let sessionsByUser: SQLiteStatement
    private let begin: SQLiteStatement
    private let end: SQLiteStatement
    let state: StoreState
    var coder: RowCoder
    private var key = RowKey()
    /// The limit that is bound to `select`; it stays bound from one read to the next.
    private var boundLimit: Int?

    init(path: String, state: StoreState) throws(SQLiteError) {
        connection = try SQLiteConnection(path: path, mode: .readOnly)
        // A reader's checkpoint could coincide with the writer's commit; see SQLiteTokenStore.
        try connection.execute("PRAGMA wal_autocheckpoint = 0")
        // Readers hardly ever wait (sqlite.org/wal.html, section 8); while one does, its whole loop waits.
        connection.waitForLocks(milliseconds: 10)
        // Enough for most inner pages of ten million tokens, so that a row takes little more than one read from the
        // page cache. Twice as much is no faster, as the leaf page dominates.
        try connection.execute("PRAGMA cache_size = -24576")
        begin = try SQLiteStatement("BEGIN", on: connection)
        end = try SQLiteStatement("COMMIT", on: connection)
        select = try SQLiteStatement(
            """
            SELECT CASE WHEN length(value) <= ?3 THEN value END, key_number, written_at, expires_at, version
            FROM token WHERE \(RowSlots.condition("?2")) AND key = ?1
            """,
            on: connection
        )
        let sessions = "SELECT \(SessionRow.columns) FROM session WHERE"
        sessionByKey = try SQLiteStatement("\(sessions) key = ?1 AND expires_at > ?2", on: connection)
        sessionsByUser = try SQLiteStatement(
            "\(sessions) user_key = ?1 AND expires_at > ?2 ORDER BY number", on: connection)
        self.state = state
        coder = RowCoder(state.sealing)
    }

    /// Reads the token info of an id.
    ///
    /// - Parameters:
    ///   - id: The unique id.
    ///   - limit: Bytes that the row's value may have. Of a longer value only the first page is read.
    func fetch(_ id: [UInt8], upTo limit: Int) throws(StoreError) -> Fetched {
        coder.key(of: id, into: &key)
        var fault: SealingError?
        let found: Fetched
        do {
            try select.bind(key.firstSlot, at: 2)
            if limit != boundLimit {
                try select.bind(Int64(limit), at: 3)
                boundLimit = limit
            }
            found = try select.withBinding(key.bytes, at: 1) { () throws(SQLiteError) -> Fetched in
                guard try select.step(), let (times, deadline) = current() else { return .nothing }
                guard !select.isNull(at: 0) else { return .longer }
                var tokenInfo: [UInt8] = []
                do throws(SealingError) {
                    try select.withBlob(at: 0) { (value) throws(SealingError) in
                        try coder.appendTokenInfo(
                            of: value, keyNumber: select.integer(at: 1), key: key.bytes, times: times,
                            to: &tokenInfo
                        )
                    }
                } catch {
                    fault = error
                }
                let version = TokenVersion(rawValue: Int64(select.integer(at: 4)))
                return .found(tokenInfo, writtenAt: times.writtenAt, until: deadline, version: version)
            }
        } catch {
            throw .read(StoreFault(error))
        }
        if let fault {
            state.unreadableCount.add(1, ordering: .relaxed)
            throw .sealing(fault)
        }
        return found
    }

    /// The times of the current row and when it expires; nil if it has expired but is not yet deleted.
    private func current() -> (times: RowTimes, deadline: Int64)? {
        let times = RowTimes(writtenAt: Int64(select.integer(at: 2)), expiresAt: select.optionalInteger(at: 3))
        guard !state.keepsForever else { return (times, .max) }
        let deadline = state.retention.deadline(writtenAt: times.writtenAt, expiresAt: times.expiresAt)
        return deadline > state.clock.expiryTime ? (times, deadline) : nil
    }

    func beginSnapshot() throws(StoreError) {
        try StoreError.reading { () throws(SQLiteError) in try begin.run() }
    }

    func endSnapshot() {
        try? end.run()
        // Whatever made COMMIT fail, the next transaction must be able to begin.
        if connection.isInTransaction { try? connection.execute("ROLLBACK") }
    }
}

/// Sessions, with the reader's connection.
extension TokenReader {
    func findSession(_ key: SessionKey) throws(StoreError) -> FoundSession {
        guard let row = try rows(of: sessionByKey, coder.rowKey(of: key)).first else { return .nothing }
        let opened = try opening(row)
        // A row that is found by the hash of another key was tampered with.
        guard opened.key == key else { throw .sealing(.tampered(keyNumber: row.keyNumber)) }
        return .found(opened.session)
    }

    /// The sessions of a user, the oldest first.
    func sessions(of user: [UInt8]) throws(StoreError) -> [UserSession] {
        var key = RowKey()
        coder.key(of: user, into: &key)
        var sessions: [UserSession] = []
        for row in try rows(of: sessionsByUser, key.bytes) { sessions.append(try opening(row).session) }
        return sessions
    }

    /// The rows that a statement finds by some bytes, except those that have expired.
    private func rows(of select: SQLiteStatement, _ bytes: [UInt8]) throws(StoreError) -> [SessionRow] {
        try StoreError.reading { () throws(SQLiteError) in
            try select.bind(Int64(time(nil)), at: 2)
            return try select.withBinding(bytes, at: 1) { () throws(SQLiteError) in
                var rows: [SessionRow] = []
                while try select.step() { rows.append(SessionRow(select)) }
                return rows
            }
        }
    }

    private func opening(_ row: SessionRow) throws(StoreError) -> OpenedSession {
        do {
            return try coder.open(row)
        } catch {
            state.unreadableCount.add(1, ordering: .relaxed)
            throw .sealing(error)
        }
    }
}
