internal import TokenStore

/// Reads all rows of a database and opens them: tokens in the order of their slots, then sessions.
///
/// Used on its connection's thread.
final class OpenedRows {
    enum Row {
        case token(StoredToken, Result<Token, SealingError>)
        case session(StoredSession, Result<OpenedSession, SealingError>)
    }

    /// Why rows have not opened, and how many.
    private(set) var unreadable: [String: Int] = [:]
    /// Bytes of the tokens' values that were read.
    private(set) var valueBytes = 0
    private let tokens: SQLiteStatement
    private let sessions: SQLiteStatement
    private var coder: RowCoder
    private var (hasTokens, hasSessions) = (true, true)

    init(_ connection: SQLiteConnection, _ sealing: Sealing) throws(SQLiteError) {
        tokens = try SQLiteStatement("SELECT \(StoredToken.columns) FROM token NOT INDEXED", on: connection)
        sessions = try SQLiteStatement("SELECT \(SessionRow.columns) FROM session", on: connection)
        coder = RowCoder(sealing)
    }

    /// The next row; nil at the end.
    func next() throws(SQLiteError) -> Row? {
        if hasTokens {
            hasTokens = try tokens.step()
            if hasTokens {
                let row = StoredToken(tokens)
                return .token(row, counted(row.token(of: tokens, &coder, &valueBytes)))
            }
        }
        if hasSessions { hasSessions = try sessions.step() }
        guard hasSessions else { return nil }
        let row = StoredSession(sessions)
        do throws(SealingError) {
            return .session(row, .success(try coder.open(row)))
        } catch {
            return .session(row, counted(.failure(error)))
        }
    }

    private func counted<Value>(_ opened: Result<Value, SealingError>) -> Result<Value, SealingError> {
        if case .failure(let error) = opened { unreadable["\(error)", default: 0] += 1 }
        return opened
    }
}

/// What opening every row of a database has shown.
struct RowAudit {
    private(set) var tokens = 0
    private(set) var sessions = 0
    /// When the last token was written, in seconds since 1970; nil without tokens.
    private(set) var lastWrittenAt: Int64?
    /// Why rows have not opened, and how many.
    private(set) var unreadable: [String: Int] = [:]
    /// What is wrong although rows open.
    private(set) var damages: [String] = []

    /// - Parameters:
    ///   - connection: Sees one state of the database meanwhile.
    ///   - sealing: Opens the rows.
    ///   - progress: Counted in tokens.
    ///   - visit: Called with each row.
    init(
        _ connection: SQLiteConnection, _ sealing: Sealing, _ progress: (StoreProgress) -> Void,
        _ visit: (OpenedRows.Row) -> Void = { _ in }
    ) throws(SQLiteError) {
        let total = try connection.integer("SELECT tokens FROM store")
        let rows = try OpenedRows(connection, sealing)
        var duplicates = DuplicateTokens()
        while let row = try rows.next() {
            switch row {
            case .token(let row, _):
                tokens += 1
                lastWrittenAt = max(lastWrittenAt ?? .min, row.times.writtenAt)
                duplicates.look(at: (row.slot, row.key))
                if tokens % 1_000 == 0 { progress(StoreProgress(done: min(tokens, total), total: total)) }
            case .session: sessions += 1
            }
            visit(row)
        }
        unreadable = rows.unreadable
        if let damage = duplicates.damage { damages.append(damage) }
        if tokens != total { damages.append("the store has counted \(total) tokens, but \(tokens) are there") }
        progress(StoreProgress(done: total, total: total))
    }
}

/// Finds duplicate tokens, which are rows with the same key.
///
/// It must be shown all rows, in the order of their slots.
///
/// A command that reads all rows anyway finds them without another pass. For a join, SQLite would build an index of all
/// keys in a temporary file (sqlite.org/optoverview.html, "Automatic Query-Time Indexes"): a gigabyte for 25 million tokens.
struct DuplicateTokens {
    /// How many rows have the key of an earlier row.
    private(set) var count = 0
    /// The last rows, as far as a duplicate of them could still follow.
    private var near: [(slot: Int64, key: [UInt8])] = []

    /// - Parameter row: The next row.
    mutating func look(at row: (slot: Int64, key: [UInt8])) {
        near.removeAll { !RowSlots.contains(row.slot, from: $0.slot) }
        if near.contains(where: { $0.key == row.key }) { count += 1 }
        near.append(row)
    }

    /// What an operator is told; nil if there are none.
    var damage: String? {
        count == 0 ? nil : "\(count) \(count == 1 ? "token is" : "tokens are") there twice"
    }
}
