import Cryptography
import TokenStore

/// Reads all rows of a database and opens them: tokens in the order of their slots, then sessions in the order of their
/// keys.
///
/// Reads some rows from one state of the database, the next ones from a later state, and so on. A long read of one
/// state would keep SQLite from restarting the WAL, which would grow with each write.
///
/// Used on its connection's thread.
final class OpenedRows {
    enum Row {
        case token(StoredToken, Result<Token, SealingError>)
        case session(SessionRow, Result<OpenedSession, SealingError>)

        var isOpen: Bool {
            switch self {
            case .token(_, .success), .session(_, .success): true
            default: false
            }
        }
    }

    /// How many tokens and sessions were read.
    private(set) var (tokens, sessions) = (0, 0)
    /// When the latest of the tokens was written, in seconds since 1970; nil if there were none.
    private(set) var lastWrittenAt: Int64?
    /// Rows that did not open: how many, by reason.
    private(set) var unreadable: [String: Int] = [:]
    /// The first of them: tokens by their slots, sessions by the ids that operators see.
    private(set) var unreadableRows: [String] = []
    /// The numbers of the keys that tokens are sealed with and that the key ring lacks.
    private(set) var missingKeys: Set<Int> = []
    /// Bytes of the tokens' values that were read.
    private(set) var valueBytes = 0
    private let connection: SQLiteConnection
    private let tokenRows: SQLiteStatement
    private let sessionRows: SQLiteStatement
    private var coder: RowCoder
    private var (hasTokens, hasSessions) = (true, true)

    /// How many rows are read from one state.
    private static let together = 1_000
    /// How many rows are named.
    private static let named = 10

    /// - Parameters:
    ///   - slot: The slot before the first token to read.
    ///   - number: The key that the rows are sealed with; nil for all rows.
    init(
        _ connection: SQLiteConnection, _ sealing: Sealing, after slot: Int64 = .min, sealedWith number: Int? = nil
    ) throws(SQLiteError) {
        self.connection = connection
        let condition = number.map { "AND key_number = \($0)" } ?? ""
        tokenRows = try SQLiteStatement(
            "SELECT \(StoredToken.columns) FROM token NOT INDEXED WHERE slot > ?1 \(condition) ORDER BY slot",
            on: connection)
        sessionRows = try SQLiteStatement(
            "SELECT \(SessionRow.columns) FROM session WHERE key > ?1 \(condition) ORDER BY key", on: connection)
        coder = RowCoder(sealing)
        try tokenRows.bind(slot, at: 1)
        try sessionRows.bind([], at: 1)
    }

    /// The next row; nil at the end.
    func next() throws(SQLiteError) -> Row? {
        if hasTokens {
            hasTokens = try tokenRows.step()
            if hasTokens { return try nextToken() }
        }
        if hasSessions { hasSessions = try sessionRows.step() }
        return hasSessions ? try nextSession() : nil
    }

    private func nextToken() throws(SQLiteError) -> Row {
        let row = StoredToken(tokenRows)
        let token = counted(row.token(of: tokenRows, &coder, &valueBytes), "the token in slot \(row.slot)")
        if case .failure(.missingKey(let number)) = token { missingKeys.insert(number) }
        tokens += 1
        lastWrittenAt = max(lastWrittenAt ?? .min, row.times.writtenAt)
        if tokens.isMultiple(of: Self.together) {
            tokenRows.reset()
            try tokenRows.bind(row.slot, at: 1)
        }
        return .token(row, token)
    }

    private func nextSession() throws(SQLiteError) -> Row {
        let row = SessionRow(sessionRows)
        sessions += 1
        if sessions.isMultiple(of: Self.together) {
            sessionRows.reset()
            try sessionRows.bind(row.key, at: 1)
        }
        do throws(SealingError) {
            return .session(row, .success(try coder.open(row)))
        } catch {
            return .session(row, counted(.failure(error), "the session \(Base64URL.encode(row.id.span))"))
        }
    }

    private func counted<Value>(
        _ opened: Result<Value, SealingError>, _ name: @autoclosure () -> String
    ) -> Result<Value, SealingError> {
        if case .failure(let error) = opened {
            unreadable["\(error)", default: 0] += 1
            if unreadableRows.count < Self.named { unreadableRows.append(name()) }
        }
        return opened
    }

    /// Reads all rows.
    ///
    /// - Parameter progress: Counted in tokens.
    /// - Returns: Damage that shows although the rows open.
    func readAll(_ progress: (StoreProgress) -> Void) throws(SQLiteError) -> [String] {
        let total = try Schema.counts(of: connection).tokens
        while let row = try next() {
            if case .token = row, tokens.isMultiple(of: Self.together) {
                progress(StoreProgress(done: min(tokens, total), total: total))
            }
        }
        progress(StoreProgress(done: total, total: total))
        return try connection.damagedCount().map { [$0] } ?? []
    }
}
