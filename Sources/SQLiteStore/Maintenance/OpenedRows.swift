import Cryptography
import TokenStore

/// Reads all rows of a database: tokens in the order of their slots, then sessions in the order of their keys.
///
/// Reads some rows from one state of the database, the next ones from a later state, and so on. A long read of one
/// state would keep SQLite from restarting the WAL, which would grow with each write.
///
/// Used on its connection's thread.
final class StoredRows {
    enum Row {
        case token(StoredToken)
        case session(SessionRow)

        /// For operators: slots are those of the table, and a session's id is that of its listings.
        var name: String {
            switch self {
            case .token(let row): "the token in slot \(row.slot)"
            case .session(let row): "the session \(Base64URL.encode(row.id.span))"
            }
        }
    }

    private let tokenRows: SQLiteStatement
    private let sessionRows: SQLiteStatement
    /// The last rows that were read.
    private var slot: Int64
    private var key: [UInt8]
    private(set) var areSessions: Bool
    private var isEnd = false
    /// How many rows were read from the present state of the database.
    private var together = 0

    /// - Parameter state: Where to begin.
    init(_ connection: SQLiteConnection, from state: WalkState = WalkState()) throws(SQLiteError) {
        tokenRows = try SQLiteStatement(
            "SELECT \(StoredToken.columns) FROM token WHERE slot > ?1 ORDER BY slot", on: connection)
        sessionRows = try SQLiteStatement(
            "SELECT \(SessionRow.columns) FROM session WHERE key > ?1 ORDER BY key", on: connection)
        areSessions = state.areSessions
        // Begins before the first valid slot, so that a misplaced row is read as well.
        slot = areSessions ? .min : state.place.flatMap { Int64($0) } ?? .min
        key = areSessions ? state.place.map(Self.key) ?? [] : []
        try rest()
    }

    private static func key(of place: String) -> [UInt8] {
        let text = Array(place.utf8)
        return Base64URL.decode(text.span) ?? []
    }

    /// The last row that was read, as `WalkState.place` has it; nil if none was.
    var place: String? {
        guard areSessions else { return slot == .min ? nil : "\(slot)" }
        let key = key
        return key.isEmpty ? nil : Base64URL.encode(key.span)
    }

    /// The statement whose current row is the one that was read last.
    var statement: SQLiteStatement { areSessions ? sessionRows : tokenRows }

    /// Ends the read of the present state of the database; the next row is read from a later one.
    func rest() throws(SQLiteError) {
        together = 0
        tokenRows.reset()
        sessionRows.reset()
        try tokenRows.bind(slot, at: 1)
        try sessionRows.bind(key, at: 1)
    }

    /// The next row; nil at the end.
    func next() throws(SQLiteError) -> Row? {
        if together == WalkPace.rows { try rest() }
        together += 1
        if !areSessions {
            if try tokenRows.step() {
                let row = StoredToken(tokenRows)
                slot = row.slot
                return .token(row)
            }
            areSessions = true
        }
        // After the end, SQLite would begin again.
        if !isEnd { isEnd = try !sessionRows.step() }
        guard !isEnd else { return nil }
        let row = SessionRow(sessionRows)
        key = row.key
        return .session(row)
    }

    // MARK: - Damaged pages

    /// Skips a page that cannot be read: the next row is the first one after it that SQLite can read.
    ///
    /// Rows are spread evenly over their slots and keys, as these are hashes. So a damaged page is passed in steps that double, and
    /// its end is then found by halving.
    ///
    /// - Parameter error: The error of `next`; thrown again unless a page is damaged.
    /// - Returns: The damage, for operators.
    func skipDamage(_ error: SQLiteError) throws(SQLiteError) -> String {
        guard error.isNotADatabase else { throw error }
        let damage = "rows after \(place ?? "the first one") cannot be read: \(error)"
        let (start, last) =
            areSessions ? (RowKey(bytes: key).hashPrefix, .max) : (UInt64(max(0, slot)), UInt64(Int64.max))
        let distances = (0..<64).map { UInt64(1) << $0 }.prefix { $0 <= last - start }
        guard let distance = distances.first(where: { canRead(after: start + $0) }) else {
            // All that is left is damaged.
            if areSessions { isEnd = true } else { areSessions = true }
            try rest()
            return damage
        }
        var (bad, good) = (start + distance / 2, start + distance)
        while good - bad > 1 {
            let middle = bad + (good - bad) / 2
            if canRead(after: middle) { good = middle } else { bad = middle }
        }
        move(to: good)
        try rest()
        return damage
    }

    private func move(to position: UInt64) {
        if areSessions {
            key = (0..<8).map { UInt8(truncatingIfNeeded: position >> (56 - 8 * $0)) }
        } else {
            slot = Int64(clamping: position)
        }
    }

    private func canRead(after position: UInt64) -> Bool {
        move(to: position)
        do {
            try rest()
            _ = try areSessions ? sessionRows.step() : tokenRows.step()
            return true
        } catch {
            return false
        }
    }
}

/// Reads all rows of a database and opens them.
///
/// Used on its connection's thread.
final class OpenedRows {
    enum Row {
        case token(StoredToken, Result<Token, SealingError>)
        case session(SessionRow, Result<OpenedSession, SealingError>)
    }

    /// What was read.
    private(set) var report = WalkReport(beganAt: 0)
    /// Bytes of the tokens' values that were read.
    private(set) var valueBytes = 0
    private let rows: StoredRows
    private let isClear: Bool
    private var coder: RowCoder

    /// - Parameters:
    ///   - sealing: Nil if the rows are not encrypted.
    ///   - state: Where to begin.
    init(_ connection: SQLiteConnection, _ sealing: Sealing?, from state: WalkState = WalkState()) throws(SQLiteError) {
        rows = try StoredRows(connection, from: state)
        isClear = sealing == nil
        coder = RowCoder(sealing ?? Sealing(.random(createdAt: 0)))
    }

    /// The statement whose current row is the one that was read last.
    var statement: SQLiteStatement { rows.statement }

    /// The last row that was read; see `StoredRows`.
    var place: String? { rows.place }

    /// The next row that can be read; nil at the end.
    ///
    /// - Parameter note: Gets the damage of each page that is skipped.
    func nextReadable(_ note: (String) -> Void) throws(SQLiteError) -> Row? {
        while true {
            do {
                return try next()
            } catch {
                note(try rows.skipDamage(error))
            }
        }
    }

    /// The next row; nil at the end.
    func next() throws(SQLiteError) -> Row? {
        guard let read = try rows.next() else { return nil }
        switch read {
        case .token(let row):
            report.noteToken(writtenAt: row.times.writtenAt)
            let token =
                isClear ? row.clearToken(of: statement, &valueBytes) : row.token(of: statement, &coder, &valueBytes)
            if case .failure(let error) = token { report.noteUnreadable(error, read.name) }
            return .token(row, token)
        case .session(let row):
            report.sessions += 1
            do {
                return .session(row, .success(isClear ? try ClearRow.session(row) : try coder.open(row)))
            } catch {
                report.noteUnreadable(error, read.name)
                return .session(row, .failure(error))
            }
        }
    }

    /// Reads all rows.
    ///
    /// - Parameter progress: Counted in tokens.
    /// - Returns: Damage that shows although the rows open.
    func readAll(of connection: SQLiteConnection, _ progress: (StoreProgress) -> Void) throws(SQLiteError) -> [String] {
        let total = try Schema.counts(of: connection).tokens
        while let row = try next() {
            if case .token = row, report.tokens.isMultiple(of: 1_000) {
                progress(StoreProgress(done: min(report.tokens, total), total: total))
            }
        }
        progress(StoreProgress(done: total, total: total))
        return try connection.damagedCount().map { [$0] } ?? []
    }
}
