package import SQLiteStore
package import TokenStore

/// Something that an operator asks of a store: of this process's own, or of a running server's over its control socket.
package protocol StoreRequest: Codable, Sendable {
    associatedtype Reply: Codable & Sendable

    /// The last part of its path on the control socket: `/store/NAME`.
    static var name: String { get }
    /// Bytes of memory that its reply may take as JSON, roughly; 0 for a few.
    static var replySize: Int { get }

    /// Carries it out.
    ///
    /// - Parameters:
    ///   - administrator: Of the store.
    ///   - progress: Told now and then how far it is, when it takes long.
    func answer(
        _ administrator: StoreAdministrator, _ progress: @escaping @Sendable (StoreAdministrator.Progress) -> Void
    ) async throws(StoreError) -> Reply
}

extension StoreRequest {
    package static var replySize: Int { 0 }
}

/// All requests, by the names of their paths.
enum StoreRequests {
    static let all: [any StoreRequest.Type] = [
        FetchToken.self, StoreTokens.self, RemoveTokens.self, ListTokens.self, StatisticsOfStore.self, VerifyStore.self,
        BackUpStore.self, RekeyStore.self, ListKeys.self, AddKey.self, RetireKey.self,
    ]

    static func named(_ name: String) -> (any StoreRequest.Type)? {
        all.first { $0.name == name }
    }
}
