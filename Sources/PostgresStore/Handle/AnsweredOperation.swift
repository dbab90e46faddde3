#if PostgreSQL
internal import System
internal import TokenStore

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
