#if PostgreSQL
import System
import TokenStore

/// One loop's use of the connections that another loop has.
///
/// The requests of a turn are handed over together at its end, and so are the outcomes of a turn of the other loop. Each loop with
/// connections of its own would cost the database two processes for each core of each server, and make its transactions smaller.
///
/// The other loop cannot ask whether a client still waits, so a write is carried out even if its client has disconnected meanwhile.
final class ForwardingHandle: StoreHandle, @unchecked Sendable {
    // Unchecked: `requests` and `rows` belong to this handle's thread, `outcomes` to the owner's.

    private let owner: PostgresStoreHandle
    private let rows: RowAccess
    private let deliver: @Sendable (@escaping @Sendable () -> Void) -> Void
    /// What the owner is asked at the end of the turn.
    private var requests: [() -> Void] = []
    /// What this handle is told at the end of the owner's turn.
    private var outcomes: [() -> Void] = []

    /// - Parameters:
    ///   - owner: Has the connections.
    ///   - deliver: As in `TokenStore.makeHandle`, for this handle's thread.
    init(to owner: PostgresStoreHandle, deliver: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void) {
        (self.owner, self.deliver) = (owner, deliver)
        rows = RowAccess(owner.state, timeout: owner.options.timeout)
    }

    var timeLimit: Duration? { owner.timeLimit }

    var unixTime: Int64 { owner.unixTime }

    func flush() {
        guard !requests.isEmpty else { return }
        let batch = ThreadHandoff(requests)
        requests = []
        owner.deliver { for request in batch.take() { request() } }
    }

    /// Asks the owner at the end of the turn; the completion is called on this handle's thread, and freed there.
    private func forward<Value>(
        _ completion: Completion<Value>, _ ask: @escaping (PostgresStoreHandle, Completion<Value>) -> Void
    ) {
        let taker = ThreadHandoff(completion)
        requests.append { [self] in ask(owner, Completion { self.give($0, to: taker) }) }
    }

    /// Gives an outcome to this handle's thread at the end of the owner's turn; on the owner's thread.
    private func give<Value>(_ outcome: Result<Value, StoreError>, to taker: ThreadHandoff<Completion<Value>>) {
        if outcomes.isEmpty {
            owner.atEndOfTurn.append { [self] in
                let batch = ThreadHandoff(outcomes)
                outcomes = []
                deliver { for outcome in batch.take() { outcome() } }
            }
        }
        outcomes.append { taker.take()(outcome) }
    }

    // MARK: - Requests

    func fetch(
        _ id: [UInt8], upTo limit: Int, if session: SessionKey?, orLater makeCompletion: () -> Completion<Fetched>
    ) throws(StoreError) -> Fetched? {
        forward(makeCompletion()) { owner, completion in
            completion.telling { () throws(StoreError) in
                try owner.fetch(id, upTo: limit, if: session) { completion }
            }
        }
        return nil
    }

    func store(
        _ tokenInfo: [UInt8], under id: [UInt8], writtenAt: Int64?, if condition: WriteCondition,
        completion: Completion<TokenVersion>
    ) {
        forward(completion) { $0.store(tokenInfo, under: id, writtenAt: writtenAt, if: condition, completion: $1) }
    }

    func remove(_ id: [UInt8], if condition: WriteCondition, completion: Completion<Bool>) {
        forward(completion) { $0.remove(id, if: condition, completion: $1) }
    }

    func sessionKey(of secret: Span<UInt8>) throws(StoreError) -> SessionKey {
        try rows.sessionKey(of: secret)
    }

    func findSession(
        _ key: SessionKey, orLater makeCompletion: () -> Completion<FoundSession>
    ) throws(StoreError) -> FoundSession? {
        forward(makeCompletion()) { owner, completion in
            completion.telling { () throws(StoreError) in try owner.findSession(key) { completion } }
        }
        return nil
    }

    func noteUse(of key: SessionKey, at unixTime: Int64) {
        requests.append { [owner] in owner.noteUse(of: key, at: unixTime) }
    }

    func createSession(_ session: UserSession, _ key: SessionKey, perUser: Int, completion: Completion<Int>) {
        forward(completion) { $0.createSession(session, key, perUser: perUser, completion: $1) }
    }

    func endSession(id: SessionID, completion: Completion<EndedSession?>) {
        forward(completion) { $0.endSession(id: id, completion: $1) }
    }

    func endSessions(of user: [UInt8], completion: Completion<Int>) {
        forward(completion) { $0.endSessions(of: user, completion: $1) }
    }

    func listSessions(of user: [UInt8], completion: Completion<[UserSession]>) {
        forward(completion) { $0.listSessions(of: user, completion: $1) }
    }

    func erase(_ user: [UInt8], completion: Completion<Erasure>) {
        forward(completion) { $0.erase(user, completion: $1) }
    }
}
#endif
