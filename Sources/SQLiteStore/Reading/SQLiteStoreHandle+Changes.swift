import Cryptography
import TokenStore

/// What a handle asks the writer to change.
extension SQLiteStoreHandle {
    /// Bytes of memory that a change of sessions takes while it waits, besides what it holds.
    static let waitingBytes = 512

    func store(
        _ tokenInfo: [UInt8], under id: [UInt8], writtenAt: Int64?, if condition: WriteCondition,
        completion: Completion<TokenVersion>
    ) {
        gather(Token.waitingBytes(id: id, info: tokenInfo), .stored(completion)) { (coder) throws(SealingError) in
            var row = try coder.row(of: Token(id: id, info: tokenInfo), writtenAt: writtenAt ?? unixTime)
            if condition.isEmpty { return .store(row) }
            row.keepsNewer = condition.keepsNewer
            return .storeIf(row, coder.condition(condition))
        }
    }

    func remove(
        _ id: [UInt8], if condition: WriteCondition, completion: Completion<Bool>
    ) {
        gather(
            Token.waitingBytes(id: id, info: []),
            .other(completion) { if case .removed(let wasThere) = $0 { wasThere } else { nil } }
        ) { coder in
            var key = RowKey()
            coder.key(of: id, into: &key)
            return .remove(key, id: id, coder.condition(condition))
        }
    }

    // MARK: - Sessions

    func sessionKey(of secret: Span<UInt8>) -> SessionKey { coder.sessionKey(of: secret) }

    func findSession(
        _ key: SessionKey, orLater makeCompletion: () -> Completion<FoundSession>
    ) throws(StoreError) -> FoundSession? {
        try reading(key, among: database.state.damagedSessions) { (reader) throws(StoreError) in
            try reader.findSession(key)
        }
    }

    func listSessions(of user: [UInt8], completion: Completion<[UserSession]>) {
        do {
            let sessions = try reading(user, among: database.state.damagedSessions) { (reader) throws(StoreError) in
                try reader.sessions(of: user)
            }
            completion(.success(sessions))
        } catch {
            completion(.failure(error))
        }
    }

    func createSession(
        _ session: UserSession, _ key: SessionKey, perUser: Int, completion: Completion<Int>
    ) {
        gather(Token.waitingBytes(id: session.user, info: session.user), .count(completion)) {
            (coder) throws(SealingError) in
            .createSession(try coder.row(of: session, key), perUser: perUser)
        }
    }

    func endSession(id: SessionID, completion: Completion<EndedSession?>) {
        gather(
            Self.waitingBytes, .other(completion) { if case .ended(let session) = $0 { .some(session) } else { nil } }
        ) { _ in .endSession(id) }
    }

    func endSessions(of user: [UInt8], completion: Completion<Int>) {
        gather(Self.waitingBytes + user.count, .count(completion)) { coder in
            var key = RowKey()
            coder.key(of: user, into: &key)
            return .endSessions(userKey: key.bytes)
        }
    }
}

extension RowCoder {
    /// A condition in terms of rows.
    fileprivate mutating func condition(_ condition: WriteCondition) -> RowCondition {
        RowCondition(match: condition.match, session: condition.session.map { rowKey(of: $0) })
    }
}

/// A change on its way from its handle to the writer and back.
///
/// One object, so that nothing is copied on the way and nothing has to be found again.
///
/// Belongs to its handle's thread until it is submitted, then to the thread that decides its outcome, usually the writer's, and when
/// it is delivered to the handle's again.
final class PendingChange: @unchecked Sendable {
    // Unchecked: each of the threads hands it on with a lock, and then no longer uses it.

    let change: Change
    /// Bytes that `WriteAdmission` has counted for it.
    let bytes: Int
    /// Nil until it is decided.
    var outcome: Result<ChangeOutcome, StoreError>?
    private var completion: ChangeCompletion

    init(_ change: Change, _ bytes: Int, _ completion: ChangeCompletion) {
        (self.change, self.bytes, self.completion) = (change, bytes, completion)
    }

    /// Tells the caller the outcome; called once, on the handle's thread.
    func complete() {
        guard let outcome = outcome.take() else { preconditionFailure("an outcome is decided before it is told") }
        let completion = completion
        // What the completion holds belongs to this thread, while another one may be the last that refers to this object.
        self.completion = .none
        completion.take(outcome)
    }
}

/// Called by the handle with the outcome of a change.
///
/// An enum, as a closure around a caller's closure would cost every write an allocation.
enum ChangeCompletion {
    case stored(Completion<TokenVersion>)
    case other((Result<ChangeOutcome, StoreError>) -> Void)
    /// Nobody learns of the outcome.
    case none

    /// - Parameter value: The outcome that changes of this kind have.
    static func other<Value>(
        _ completion: Completion<Value>, _ value: @escaping (ChangeOutcome) -> Value?
    ) -> ChangeCompletion {
        .other { outcome in
            completion(
                outcome.map { outcome in
                    guard let value = value(outcome) else {
                        preconditionFailure("a change has the outcome of its kind")
                    }
                    return value
                })
        }
    }

    /// For a change that ends some sessions.
    static func count(_ completion: Completion<Int>) -> ChangeCompletion {
        .other(completion) { if case .endedSome(let count) = $0 { count } else { nil } }
    }

    func take(_ outcome: Result<ChangeOutcome, StoreError>) {
        switch (self, outcome) {
        case (.stored(let completion), .success(.stored(let version))): completion(.success(version))
        case (.stored(let completion), .failure(let error)): completion(.failure(error))
        case (.stored, _): preconditionFailure("a change has the outcome of its kind")
        case (.other(let take), _): take(outcome)
        case (.none, _): break
        }
    }
}
