internal import Cryptography
internal import TokenStore

/// Users and their sessions in a database that is restored.
extension OfflineSQLiteStore {
    /// Sessions of one step.
    private static let step = 1_000

    /// Removes the tokens of users that were erased, and their sessions or all sessions, from the copy of a backup.
    func remove(
        _ erased: ErasedRows, from writer: WriterConnection, _ sealing: Sealing, keepsSessions: Bool
    ) throws(StoreError) -> Remains {
        var (erased, remains) = (erased, Remains())
        do throws(SQLiteError) {
            let sessions = try writer.sessions(sealing)
            var ended: [StoredSession] = []
            var users = Set<[UInt8]>()
            try Self.forEachStep(of: sessions) { (rows) throws(SQLiteError) in
                for row in rows {
                    // A session that does not open is of no use.
                    let user = try? sessions.coder.open(row).session.user
                    let isErased = user.map { erased.isErased($0, TokenVersion(rawValue: row.number)) } ?? false
                    if isErased { users.insert(row.userKey) }
                    if isErased || user == nil || !keepsSessions { ended.append(row) }
                }
            }
            let slots = erased.slots
            remains.endedSessions = ended.count
            try writer.transaction { () throws(SQLiteError) in
                for slot in slots {
                    users.remove(try writer.key(at: slot))
                    try writer.connection.execute("DELETE FROM token WHERE slot = \(slot)")
                }
                writer.noteRemoved(slots.count)
                writer.noteEnded(try sessions.remove(ended), sessions)
                // What is written from now on must be newer than every erasure.
                if let last = erased.lastVersion {
                    try Schema.raiseVersionLimit(last.rawValue, in: writer.connection)
                }
            }
            remains.erasedUsers = slots.count + users.count
            remains.tokens = writer.tokenCount
        } catch {
            throw .write(StoreFault(error))
        }
        if let fault = erased.fault { throw .sealing(SealingError(fault)) }
        return remains
    }

    /// Calls `body` with all sessions, some at a time.
    private static func forEachStep(
        of sessions: SessionTable, _ body: ([StoredSession]) throws(SQLiteError) -> Void
    ) throws(SQLiteError) {
        var last: [UInt8]? = []
        while let start = last {
            let rows = try sessions.rows(after: start, limit: step)
            try body(rows)
            last = rows.count < step ? nil : rows.last?.key
        }
    }
}

extension WriterConnection {
    /// The key of the row in a slot; empty if there is none.
    fileprivate func key(at slot: Int64) throws(SQLiteError) -> [UInt8] {
        let select = try SQLiteStatement("SELECT key FROM token WHERE slot = ?1", on: connection)
        try select.bind(slot, at: 1)
        return try select.step() ? select.blob(at: 0) : []
    }
}

/// Finds the rows of a backup whose users were erased after it was made.
struct ErasedRows {
    /// One for each file of erasures; none if nobody was ever erased.
    private var searches: [Erasures.Search] = []
    /// A version that all of the erasures have; nil without any.
    let lastVersion: TokenVersion?
    /// Where the tokens lie that were found.
    private(set) var slots: [Int64] = []
    private(set) var fault: CryptographyError?

    init(_ files: [ErasuresFile]) throws(StoreError) {
        var last: TokenVersion?
        for file in files {
            guard let erasures = try file.load() else { continue }
            last = [last, erasures.last].compactMap(\.self).max()
            do throws(CryptographyError) {
                searches.append(try Erasures.Search(erasures))
            } catch {
                throw .sealing(SealingError(error))
            }
        }
        lastVersion = last
    }

    /// Remembers a token if its user was erased.
    mutating func note(_ token: Token, _ row: StoredRow) {
        if isErased(token.id, row.version) { slots.append(row.slot) }
    }

    /// Whether a user was erased after something was written.
    mutating func isErased(_ user: [UInt8], _ version: TokenVersion) -> Bool {
        do throws(CryptographyError) {
            for index in searches.indices where try searches[index].finds(user, writtenAs: version) { return true }
        } catch {
            fault = error
        }
        return false
    }
}

/// What is left of a backup.
struct Remains {
    var tokens = 0
    var erasedUsers = 0
    var endedSessions = 0
    /// Of the keys that its tokens are sealed with.
    var keyNumbers: Set<Int> = []
}
