package import TokenStore

/// Something that an operator asks of a store: of this process's own, or of a running server's over its control socket.
package protocol StoreRequest: Codable, Sendable {
    associatedtype Reply: Codable & Sendable

    /// The last part of its path on the control socket: `/store/NAME`.
    static var name: StoreRequestName { get }
    /// Bytes of memory that its reply may take as JSON, roughly; 0 for a few.
    static var replySize: Int { get }

    /// Carries it out.
    ///
    /// - Parameters:
    ///   - administrator: Of the store.
    ///   - progress: Told now and then how far it is, when it takes long.
    func answer(
        _ administrator: any StoreAdministrator, _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> Reply
}

extension StoreRequest {
    package static var replySize: Int { 0 }
}

/// The names of all requests; a request without a case here does not compile, nor does a case without its request.
package enum StoreRequestName: String, CaseIterable, Sendable {
    case get, put, delete, page, stats, verify, backup, rekey
    case listKeys = "keys/list"
    case addKey = "keys/add"
    case retireKey = "keys/retire"

    /// The request of this name.
    var type: any StoreRequest.Type {
        switch self {
        case .get: FetchToken.self
        case .put: StoreTokens.self
        case .delete: RemoveTokens.self
        case .page: ListTokens.self
        case .stats: StatisticsOfStore.self
        case .verify: VerifyStore.self
        case .backup: BackUpStore.self
        case .rekey: RekeyStore.self
        case .listKeys: ListKeys.self
        case .addKey: AddKey.self
        case .retireKey: RetireKey.self
        }
    }
}

/// A line of an answer on the control socket: how far the work is, or in the last line its reply or what is wrong.
struct ControlLine<Reply: Codable & Sendable>: Codable, Sendable {
    var progress: StoreProgress?
    var reply: Reply?
    var error: String?
}

/// Stands for no reply at all.
struct NoReply: Codable, Sendable {}
