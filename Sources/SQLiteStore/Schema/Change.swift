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
