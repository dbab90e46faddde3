#if PostgreSQL
internal import System
internal import TokenStore

/// Something that a handle asks the database for, as one statement or a few that belong together.
///
/// It is sent, takes an answer for each of its statements, and is told when their transaction was committed. It may be sent
/// again, on another connection, at any point before that. Belongs to its handle's thread.
class Operation {
    /// Bytes of memory that each request takes until it is answered.
    let bytes: Int
    /// When it is given up.
    let deadline: MonotonicTime
    let rows: RowAccess
    /// The key by which the operations of a transaction are sorted; empty for reads.
    ///
    /// If all transactions lock their rows in the same order, none waits for one that waits for it.
    let lockOrder: [UInt8]
    /// Whether the connection was lost after sending: the database may have carried it out, or may do so later.
    var mayHaveLanded = false
    /// Whether its completion was called.
    var isOver = false
    /// Whether it was sent to the database.
    var hasBeenSent = false
    /// Grows with each operation of a handle; 0 until it is gathered.
    var number: UInt64 = 0

    init(bytes: Int, deadline: MonotonicTime, rows: RowAccess, lockOrder: [UInt8] = []) {
        (self.bytes, self.deadline, self.rows, self.lockOrder) = (bytes, deadline, rows, lockOrder)
    }

    /// Whether it changes something.
    var isWrite: Bool { true }

    /// How many requests it is for.
    var requestCount: Int { 1 }

    /// Whether the caller still waits for the outcome.
    var isAwaited: Bool { true }

    /// How many statements it sends.
    var statementCount: Int { 1 }

    /// Sends the statements.
    func send(on connection: PostgresConnection) throws(PostgresError) {
        preconditionFailure("each operation has its statements")
    }

    /// Takes the answer to a statement, which its transaction may still take back.
    func take(_ result: borrowing QueryResult, of statement: Int) {}

    // MARK: - With others

    /// The statement that can carry out this operation together with others; nil if it needs a statement of its own.
    var sharedStatement: SharedStatement? { nil }

    /// Whether it needs a statement of its own, for example because a statement for several operations has failed.
    var isAlone = false

    /// The number by which the answer to a shared statement identifies this operation.
    var mark: Int64 { Int64(number) }

    /// Adds the parameters of a shared statement.
    func append(to columns: inout SharedStatement.Columns) {}

    /// Takes the answer to a shared statement, which its transaction may still take back.
    ///
    /// - Parameter row: The row of this operation; nil if the answer has none.
    func take(_ result: borrowing QueryResult, row: Int?) {}

    // MARK: - The end

    /// What follows when the statements were committed.
    enum Outcome {
        /// The completion was called.
        case done
        /// It has further statements.
        case goesOn
    }

    /// The statements were committed, and what they have read counts.
    func finish() -> Outcome { .done }

    /// Calls the completion with an error.
    func fail(_ error: StoreError) {}

    /// The error when the time is over.
    final func timeOut(after limit: Duration) {
        fail(.overloaded(.unanswered(limit: limit)))
    }
}

extension Statement {
    func send(on connection: PostgresConnection, _ rows: RowAccess) throws(PostgresError) {
        try connection.send(name, rows.parameters)
    }
}

/// An operation with one outcome, which its completion takes.
class AnsweredOperation<Value>: Operation {
    /// What the statements have found or done so far.
    var outcome: Result<Value, StoreError>
    private let completion: Completion<Value>

    init(
        _ outcome: Value, bytes: Int = Operation.waitingBytes, deadline: MonotonicTime, rows: RowAccess,
        lockOrder: [UInt8] = [], completion: Completion<Value>
    ) {
        (self.outcome, self.completion) = (.success(outcome), completion)
        super.init(bytes: bytes, deadline: deadline, rows: rows, lockOrder: lockOrder)
    }

    final override var isAwaited: Bool { completion.isAwaited }

    final override func finish() -> Outcome {
        completion(outcome)
        return .done
    }

    final override func fail(_ error: StoreError) { completion(.failure(error)) }
}
#endif
