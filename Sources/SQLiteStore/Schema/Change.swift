import TokenStore

/// What a handle asks the writer to change.
enum Change: Sendable {
    /// Stores a token; the usual one, so it is not boxed.
    case store(Row)
    indirect case storeIf(Row, RowCondition)
    /// Removes a token; the id is for the observer of writes.
    indirect case remove(RowKey, id: [UInt8], RowCondition)
    indirect case createSession(SessionRow, perUser: Int)
    case endSession(SessionID)
    /// All sessions of a user, named by the key of its row.
    case endSessions(userKey: [UInt8])
    /// The keys of sessions' rows, and when they were used in seconds since 1970.
    indirect case noteUses([(key: [UInt8], usedAt: Int64)])

    /// The unique id whose token it changes, for the observer of writes; nil for none.
    var writtenID: [UInt8]? {
        switch self {
        case .store(let row), .storeIf(let row, _): row.id
        case .remove(_, let id, _): id
        case .createSession, .endSession, .endSessions, .noteUses: nil
        }
    }

    /// A key by which changes of the same row, or of the same user's sessions, are recognized.
    var key: [UInt8] {
        switch self {
        case .store(let row), .storeIf(let row, _): row.key.bytes
        case .remove(let key, _, _): key.bytes
        case .createSession(let row, _): row.userKey
        case .endSession(let id): id.bytes
        case .endSessions(let userKey): userKey
        case .noteUses: []
        }
    }

    /// Bytes of the value that it writes.
    var valueBytes: Int {
        switch self {
        case .store(let row), .storeIf(let row, _): row.value.count
        case .createSession(let row, _): row.user.count
        case .remove, .endSession, .endSessions, .noteUses: 0
        }
    }
}

/// A condition in terms of rows; see WriteCondition.
struct RowCondition: Sendable {
    var match: WriteCondition.Match
    /// The key of the session's row; nil for none.
    var session: [UInt8]?
}

/// What a change has done.
enum ChangeOutcome: Sendable {
    case stored(TokenVersion)
    case removed(Bool)
    case ended(EndedSession?)
    /// How many sessions were ended.
    case endedSome(Int)
    case noted
}

/// A change on its way from its handle to the writer and back.
///
/// One object, so that nothing is copied on the way and nothing has to be found again.
///
/// It belongs to its handle's thread until it is submitted, then to the thread that decides its outcome, usually the writer's, and
/// to its handle's thread again when it is delivered.
final class PendingChange: @unchecked Sendable {
    // Unchecked: a thread passes it on through a queue with a lock, and does not use it after that.

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
/// An enum, because wrapping the caller's closure in another one would cost every write an allocation.
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

/// What a step of the walk changes: rows that have not been written since they were read.
struct WalkChanges: Sendable {
    var expiredTokens: [(slot: Int64, version: TokenVersion)] = []
    var expiredSessions: [SessionRow] = []
    /// Sealed again.
    var tokens: [(slot: Int64, version: TokenVersion, value: [UInt8], keyNumber: Int, writtenAt: Int64)] = []
    var sessions: [(key: [UInt8], user: [UInt8], keyNumber: Int)] = []
    /// Bytes of the values that the step has read.
    var readBytes = 0

    var isEmpty: Bool { expiredTokens.isEmpty && expiredSessions.isEmpty && tokens.isEmpty && sessions.isEmpty }

    /// The same changes, one in each.
    var oneByOne: [WalkChanges] {
        expiredTokens.map { WalkChanges(expiredTokens: [$0]) }
            + expiredSessions.map { WalkChanges(expiredSessions: [$0]) }
            + tokens.map { WalkChanges(tokens: [$0]) } + sessions.map { WalkChanges(sessions: [$0]) }
    }
}
