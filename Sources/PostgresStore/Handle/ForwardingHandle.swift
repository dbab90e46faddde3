#if PostgreSQL
import Synchronization
import System
import TokenStore

/// One loop's use of the connections that another loop has.
///
/// The operations of a turn are handed over together at its end, and so are the outcomes of a turn of the other loop. If each loop had
/// connections, the database would have two processes for each core of each server, and smaller transactions.
final class ForwardingHandle: OperationGatherer, @unchecked Sendable {
    // Unchecked: `gathered` and `rows` belong to this handle's thread, `outcomes` to the owner's.

    private let owner: PostgresStoreHandle
    let rows: RowAccess
    private let deliver: @Sendable (@escaping @Sendable () -> Void) -> Void
    /// The operations of the turn.
    private var gathered: [Operation] = []
    /// What this handle is told at the end of the owner's turn.
    private var outcomes: [() -> Void] = []

    /// - Parameters:
    ///   - owner: Has the connections.
    ///   - deliver: As in `TokenStore.makeHandle`, for this handle's thread.
    init(to owner: PostgresStoreHandle, deliver: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void) {
        (self.owner, self.deliver) = (owner, deliver)
        rows = RowAccess(owner.state, timeout: owner.options.timeout)
    }

    var state: PostgresState { owner.state }
    var options: PostgresOptions { owner.options }
    var senderRows: RowAccess { owner.rows }

    func gather(_ operation: Operation) { gathered.append(operation) }

    func flush() {
        guard !gathered.isEmpty else { return }
        let batch = ThreadHandoff(gathered)
        gathered = []
        owner.deliver { [owner] in for operation in batch.take() { owner.gather(operation) } }
    }

    func forSender<Value>(_ completion: Completion<Value>) -> Completion<Value> {
        let taker = Taker(completion, deliver)
        return Completion(for: completion.shared) { self.give($0, to: taker) }
    }

    /// Gives an outcome to this handle's thread at the end of the owner's turn; on the owner's thread.
    private func give<Value>(_ outcome: Result<Value, StoreError>, to taker: Taker<Value>) {
        if outcomes.isEmpty {
            owner.atEndOfTurn.append { [self] in
                let batch = ThreadHandoff(outcomes)
                outcomes = []
                deliver { for outcome in batch.take() { outcome() } }
            }
        }
        outcomes.append { taker.take(outcome) }
    }

    /// A completion of this handle's thread, which frees it too, if the owner drops a request whose client has disconnected.
    private final class Taker<Value>: Sendable {
        private let completion: ThreadHandoff<Completion<Value>>
        private let deliver: @Sendable (@escaping @Sendable () -> Void) -> Void
        private let isOver = Atomic(false)

        init(
            _ completion: Completion<Value>, _ deliver: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void
        ) {
            (self.completion, self.deliver) = (ThreadHandoff(completion), deliver)
        }

        deinit {
            guard !isOver.load(ordering: .relaxed) else { return }
            deliver { [completion] in _ = completion.take() }
        }

        func take(_ outcome: Result<Value, StoreError>) {
            isOver.store(true, ordering: .relaxed)
            completion.take()(outcome)
        }
    }
}
#endif
