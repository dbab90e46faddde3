import Cryptography
import TokenStore

/// A handle of a `MemoryStore`: changes are gathered until `flush`, and their outcomes delivered.
///
/// Unchecked: it belongs to its thread; what is sent elsewhere comes back through `deliver`.
final class MemoryStoreHandle: StoreHandle, @unchecked Sendable {
    private let store: MemoryStore
    private let readsLater: Bool
    private let deliver: @Sendable (@escaping @Sendable () -> Void) -> Void
    private var gathered: [MemoryChange] = []
    private var admittedBytes = 0
    /// Calls of completions with the outcomes of the changes that were made.
    private var outcomes: [() -> Void] = []

    init(
        _ store: MemoryStore, readsLater: Bool, deliver: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void
    ) {
        self.store = store
        self.readsLater = readsLater
        self.deliver = deliver
    }

    var timeLimit: Duration? { nil }

    func fetch(
        _ id: [UInt8], upTo limit: Int, if session: SessionKey?, orLater makeCompletion: () -> Completion<Fetched>
    ) throws(StoreError) -> Fetched? {
        guard readsLater else { return try store.fetch(id, upTo: limit, if: session).get() }
        let completion = Handover(makeCompletion())
        deliver { [store] in completion.value(store.fetch(id, upTo: limit, if: session)) }
        return nil
    }

    func store(
        _ tokenInfo: [UInt8], under id: [UInt8], writtenAt: Int64?, if condition: WriteCondition,
        completion: Completion<TokenVersion>
    ) {
        let row = MemoryRow(info: tokenInfo, writtenAt: writtenAt ?? MemoryRow.now)
        gather(Token.waitingBytes(id: id, info: tokenInfo), writing: id, completion) {
            $0.write(row, under: id, if: condition, $1)
        }
    }

    func remove(
        _ id: [UInt8], if condition: WriteCondition, completion: Completion<Bool>
    ) {
        gather(Token.waitingBytes(id: id, info: []), writing: id, completion) { $0.remove(id, if: condition, $1) }
    }

    private func gather<Value>(
        _ bytes: Int, writing id: [UInt8]? = nil, _ completion: Completion<Value>,
        _ body: @escaping (MemoryStore, Retention) -> Result<Value, StoreError>
    ) {
        if let error = store.admit(bytes) { return completion(.failure(error)) }
        admittedBytes += bytes
        gathered.append(
            MemoryChange(writtenID: id) { [self] store, retention, error in
                let outcome = error.map { .failure($0) } ?? body(store, retention)
                outcomes.append { completion(outcome) }
            }
        )
    }

    // MARK: - Sessions

    func sessionKey(of secret: Span<UInt8>) -> SessionKey {
        let digest = SHA256Digest.digest(of: secret)
        return SessionKey(digest.span)
    }

    func findSession(
        _ key: SessionKey, orLater makeCompletion: () -> Completion<FoundSession>
    ) throws(StoreError) -> FoundSession? {
        guard readsLater else { return store.find(key) }
        let completion = Handover(makeCompletion())
        deliver { [store] in completion.value(.success(store.find(key))) }
        return nil
    }

    func listSessions(of user: [UInt8], completion: Completion<[UserSession]>) {
        completion(.success(store.sessions(of: user)))
    }

    func noteUse(of key: SessionKey, at unixTime: Int64) {
        gather(64, Completion { _ in }) { store, _ in .success(store.noteUse(of: key, at: unixTime)) }
    }

    func createSession(_ session: UserSession, _ key: SessionKey, perUser: Int, completion: Completion<Int>) {
        gather(session.user.count, completion) { store, _ in .success(store.create(session, key, perUser: perUser)) }
    }

    func endSession(id: SessionID, completion: Completion<EndedSession?>) {
        gather(0, completion) { store, _ in
            .success(store.end { $0.id == id }.first.map { EndedSession(id: $0.id, user: $0.user) })
        }
    }

    func endSessions(of user: [UInt8], completion: Completion<Int>) {
        gather(0, completion) { store, _ in .success(store.end { $0.user == user }.count) }
    }

    func erase(_ user: [UInt8], completion: Completion<Erasure>) {
        gather(user.count, writing: user, completion) { store, _ in
            let sessions = store.end { $0.user == user }.count
            return .success(Erasure(hadToken: store.removeRow(user), sessions: sessions))
        }
    }

    func flush() {
        guard !gathered.isEmpty else { return }
        let changes = gathered
        store.commit(changes, admittedBytes: admittedBytes)
        let waiting = Handover(outcomes)
        (gathered, admittedBytes, outcomes) = ([], 0, [])
        deliver { for call in waiting.value { call() } }
    }

    /// A value of the handle's thread that is sent back there.
    private struct Handover<Value>: @unchecked Sendable {
        let value: Value

        init(_ value: Value) {
            self.value = value
        }
    }
}

/// A change to a `MemoryStore` that waits for `flush`.
struct MemoryChange {
    /// The id whose token it changes; nil for none.
    var writtenID: [UInt8]?
    private let body: (MemoryStore, Retention, StoreError?) -> Void

    /// - Parameter body: Makes the change and notes its outcome; with an error, it only notes that.
    init(writtenID: [UInt8]? = nil, _ body: @escaping (MemoryStore, Retention, StoreError?) -> Void) {
        self.writtenID = writtenID
        self.body = body
    }

    func carryOut(on store: MemoryStore, _ retention: Retention, _ error: StoreError?) {
        body(store, retention, error)
    }
}
