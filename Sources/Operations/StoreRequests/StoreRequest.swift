package import Audit
package import TokenStore

/// An operator's request to a store: performed in this process, or sent to a running server over its control socket.
///
/// What is optional may be missing in its JSON, for people who send it with curl.
package protocol StoreRequest: Codable, Sendable {
    associatedtype Reply: Codable & Sendable

    /// The last part of the request's path on the control socket: `/store/NAME`.
    static var name: String { get }
    static var path: String { get }
    /// What the audit log calls it; nil if it is never recorded.
    var action: AuditEvent.Action? { get }
    /// What the log says about a request that was performed: the command and what it has done, without ids, users and tokens. Nil
    /// if nothing is logged, as for a request that changes nothing.
    func act(_ reply: Reply) -> OperatorAct?

    /// Performs the request, and records in the audit log what it does with users' tokens and sessions, and with the store as a
    /// whole.
    func answer(_ store: AuditedStore) async throws(StoreError) -> Reply
}

extension StoreRequest {
    package static var path: String { "/store/\(name)" }
    package var action: AuditEvent.Action? { nil }
    package func act(_ reply: Reply) -> OperatorAct? { nil }
}

/// All requests; the server refuses any that is missing here.
enum StoreRequests {
    private static let all: [any StoreRequest.Type] = [
        FetchToken.self, StoreTokens.self, RemoveTokens.self, ListTokens.self, StatisticsOfStore.self, VerifyStore.self,
        BackUpStore.self, RecordBackup.self, WalkStore.self, ListKeys.self, AddKey.self, UseKey.self, RetireKey.self,
        AddSession.self, ListSessions.self, RemoveSessions.self, EraseUser.self, APIKeyChange.self,
    ]

    static var paths: [String] { all.map { $0.path } }

    static func type(at path: String) -> (any StoreRequest.Type)? { all.first { $0.path == path } }
}

/// What the log says of a request.
package typealias OperatorAct = (command: String, text: String)

/// A line of an answer on the control socket: the progress of the work, or, in the last line, the reply or the error.
struct ControlLine<Reply: Codable & Sendable>: Codable, Sendable {
    var progress: StoreProgress?
    var reply: Reply?
    var error: String?
}

/// The reply to a request that has nothing to tell, and of lines that contain only progress or an error.
package struct NoReply: Codable, Sendable {}
