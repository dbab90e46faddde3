package import TokenStore

/// An operator's request to a store: performed in this process, or sent to a running server over its control socket.
package protocol StoreRequest: Codable, Sendable {
    associatedtype Reply: Codable & Sendable

    /// The last part of the request's path on the control socket: `/store/NAME`.
    static var name: StoreRequestName { get }
    /// The approximate largest size of the reply's JSON in bytes; 0 for a small reply.
    static var replySize: Int { get }

    /// What the log says of a request that was performed; nil if it says nothing.
    func act(_ reply: Reply) -> OperatorAct?

    /// Performs the request.
    ///
    /// - Parameters:
    ///   - administrator: The store's administrator.
    ///   - progress: Called repeatedly with the progress of requests that take long.
    func answer(
        _ administrator: any StoreAdministrator, _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> Reply
}

extension StoreRequest {
    package static var replySize: Int { 0 }

    package func act(_ reply: Reply) -> OperatorAct? { nil }
}

/// The names of all requests.
///
/// A request needs a case here to compile, and each case needs its request.
package enum StoreRequestName: String, CaseIterable, Sendable {
    case get, put, delete, page, stats, verify, backup, rekey
    case recordBackup = "backup/record"
    case listKeys = "keyring/list"
    case addKey = "keyring/add"
    case useKey = "keyring/use"
    case retireKey = "keyring/retire"
    case addSession = "sessions/add"
    case listSessions = "sessions/list"
    case removeSessions = "sessions/remove"
    case erase

    /// The request of this name.
    package var type: any StoreRequest.Type {
        switch self {
        case .get: FetchToken.self
        case .put: StoreTokens.self
        case .delete: RemoveTokens.self
        case .page: ListTokens.self
        case .stats: StatisticsOfStore.self
        case .verify: VerifyStore.self
        case .backup: BackUpStore.self
        case .recordBackup: RecordBackup.self
        case .rekey: RekeyStore.self
        case .listKeys: ListKeys.self
        case .addKey: AddKey.self
        case .useKey: UseKey.self
        case .retireKey: RetireKey.self
        case .addSession: AddSession.self
        case .listSessions: ListSessions.self
        case .removeSessions: RemoveSessions.self
        case .erase: EraseUser.self
        }
    }
}

/// A line of an answer on the control socket: the progress of the work, or, in the last line, the reply or the error.
struct ControlLine<Reply: Codable & Sendable>: Codable, Sendable {
    var progress: StoreProgress?
    var reply: Reply?
    var error: String?
}

/// The reply type of lines that contain only progress or an error.
struct NoReply: Codable, Sendable {}

/// What the log says of a request that changes the store, or that shows tokens of many users.
///
/// Without ids, users and tokens.
package struct OperatorAct: Hashable, Sendable {
    /// The result.
    package enum Outcome: Hashable, Sendable {
        case done(String)
        /// How many things the request was about, and what they are. A command may send many requests, whose numbers are
        /// added up.
        case counted(Int, String)
    }

    /// Such as `backup`.
    let name: String
    let outcome: Outcome

    static func done(_ name: String, _ text: String) -> OperatorAct {
        OperatorAct(name: name, outcome: .done(text))
    }

    static func counted(_ name: String, _ count: Int, _ what: String) -> OperatorAct {
        OperatorAct(name: name, outcome: .counted(count, what))
    }
}
