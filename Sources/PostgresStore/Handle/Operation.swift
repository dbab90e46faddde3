#if PostgreSQL
import System
import TokenStore

/// What a handle does in the database for one request, with one statement or a few that belong together.
///
/// It sends its statements, takes an answer to each, and is finished when their transaction was committed. Until then it may be
/// sent again at any time, on another connection. Belongs to its handle's thread.
class Operation {
    /// How many bytes of memory the request takes until it is answered.
    let bytes: Int
    /// When it is given up, by `SystemUptime`: the time for which the machine was suspended counts, as the rows of removed tokens
    /// may be swept in it.
    let deadline: Double
    let rows: RowAccess
    /// The key of the user whose rows it locks, by which the operations of a transaction are sorted; empty for reads.
    ///
    /// All transactions lock the rows of users in this order, so operations on different users cannot deadlock. Operations on
    /// one user can, if one transaction has locked the token, another one a session, and each then needs the other's row. PostgreSQL
    /// ends one of the two after a second (`deadlock_timeout`), and its operations are sent again.
    let lockOrder: [UInt8]
    /// Whether the connection was lost after sending, so that the database may have carried it out, or may still do so.
    var mayHaveLanded = false
    /// Whether it has ended, so that its completion is not called again.
    var isOver = false
    /// Whether it needs a transaction of its own: a shared one has failed, or it locks rows of a user that is not known.
    var isAlone = false
    /// Whether it waits for no lock, and so is sent after all that do: nobody then waits long for what it locks.
    var isLast = false
    /// Its place in the order of the handle's operations; 0 until it is gathered.
    var number: UInt64 = 0

    /// How many bytes of memory an operation takes while it waits, besides the data of its request.
    static let waitingBytes = 512

    init(_ rows: RowAccess, bytes: Int = Operation.waitingBytes, lockOrder: [UInt8] = []) {
        (self.rows, self.bytes, self.lockOrder, deadline) = (rows, bytes, lockOrder, rows.deadline)
    }

    /// Whether its time is over.
    var isLate: Bool { deadline <= SystemUptime.now }

    /// Whether it changes something.
    var isWrite: Bool { true }

    /// Whether a client still waits for its outcome.
    var isAwaited: Bool { true }

    /// How many statements it sends.
    var statementCount: Int { 1 }

    /// Sends the statements.
    func send(on connection: PostgresConnection) throws(PostgresError) {
        preconditionFailure("each operation has its statements")
    }

    /// Takes the answer to a statement, whose transaction may still be rolled back.
    func take(_ result: borrowing QueryResult, of statement: Int) {
        take(result, row: result.rowCount > 0 ? 0 : nil)
    }

    // MARK: - Shared statements

    /// The statement that can carry out this operation together with others; nil if it needs statements of its own.
    var sharedStatement: SharedStatement? { nil }

    /// The number by which the answer to a shared statement identifies this operation.
    var mark: Int64 { Int64(number) }

    /// Adds the parameters of a shared statement.
    func append(to columns: inout SharedStatement.Columns) {}

    /// Takes the answer to a shared statement, whose transaction may still be rolled back.
    ///
    /// - Parameter row: The row of this operation; nil if the answer has none.
    func take(_ result: borrowing QueryResult, row: Int?) {}

    // MARK: - The end

    /// Called when the statements were committed, and what they have read is proven.
    ///
    /// - Returns: Whether the completion was called; otherwise there are further statements.
    func finish() -> Bool { true }

    /// Calls the completion with an error.
    func fail(_ error: StoreError) {}
}

/// An operation with one outcome, which its completion takes.
class AnsweredOperation<Value>: Operation {
    /// The outcome according to the answers so far.
    var outcome: Result<Value, StoreError>
    let completion: Completion<Value>

    init(
        _ rows: RowAccess, _ outcome: Value, bytes: Int = Operation.waitingBytes, lockOrder: [UInt8] = [],
        completion: Completion<Value>
    ) {
        (self.outcome, self.completion) = (.success(outcome), completion)
        super.init(rows, bytes: bytes, lockOrder: lockOrder)
    }

    final override var isAwaited: Bool { completion.isAwaited }

    override func finish() -> Bool {
        completion(outcome)
        return true
    }

    final override func fail(_ error: StoreError) { completion(.failure(error)) }
}

/// Reads one token.
final class FetchOperation: AnsweredOperation<Fetched> {
    private let key: [UInt8]
    private let limit: Int
    /// The key of the row of a session that must exist; nil if none must.
    private let session: [UInt8]?

    init(
        _ rows: RowAccess, _ key: [UInt8], upTo limit: Int, session: [UInt8]?, bytes: Int,
        completion: Completion<Fetched>
    ) {
        (self.key, self.limit, self.session) = (key, limit, session)
        super.init(rows, .nothing, bytes: bytes, completion: completion)
        // The answers of a group are in memory together, until its transaction has ended.
        isAlone = limit > SharedStatement.longestValue
    }

    override var isWrite: Bool { false }

    override var sharedStatement: SharedStatement? {
        limit > SharedStatement.longestValue ? nil : .fetch(limit: limit)
    }

    override func append(to columns: inout SharedStatement.Columns) {
        columns.keys.append(key)
        columns.sessions.append(session)
        columns.marks.append(mark)
    }

    override func send(on connection: PostgresConnection) throws(PostgresError) {
        try connection.send(
            .fetch, [.bytea(key), .bigint(Int64(clamping: limit)), .bytea(session), .bigint(rows.unixTime)])
    }

    override func take(_ result: borrowing QueryResult, row: Int?) {
        outcome = Result { () throws(StoreError) in
            try row.map { (row) throws(StoreError) in try rows.opened(result, row, key) } ?? .nothing
        }
    }
}

/// Statements on users' sessions, which the handle gives it.
final class SessionOperation<Value>: AnsweredOperation<Value> {
    private let statements: [(statement: Statement, parameters: Parameters)]
    private let changesRows: Bool
    private var value: Value
    private let takeAnswer: (borrowing QueryResult, Statement, inout Value) throws(StoreError) -> Void

    /// - Parameters:
    ///   - value: The outcome, unless the answers change it.
    ///   - user: The key of the user whose rows it locks; nil if that is not known, or if it only reads.
    ///   - skipsLocked: Whether its statements pass over rows that others have locked.
    ///   - takeAnswer: Updates the outcome with the answer to a statement. It is called again if the statements are sent again.
    init(
        _ rows: RowAccess, _ value: Value, of user: [UInt8]? = nil, isWrite: Bool = true, skipsLocked: Bool = false,
        _ statements: [(statement: Statement, parameters: Parameters)], _ completion: Completion<Value>,
        take takeAnswer: @escaping (borrowing QueryResult, Statement, inout Value) throws(StoreError) -> Void
    ) {
        (self.value, self.statements, changesRows, self.takeAnswer) = (value, statements, isWrite, takeAnswer)
        super.init(rows, value, lockOrder: user ?? [], completion: completion)
        isLast = skipsLocked
        isAlone = isWrite && user == nil && !skipsLocked
    }

    override var isWrite: Bool { changesRows }

    override var statementCount: Int { statements.count }

    override func send(on connection: PostgresConnection) throws(PostgresError) {
        for (statement, parameters) in statements { try connection.send(statement, parameters) }
    }

    override func take(_ result: borrowing QueryResult, of statement: Int) {
        outcome = Result { () throws(StoreError) in
            try takeAnswer(result, statements[statement].statement, &value)
            return value
        }
    }
}
#endif
