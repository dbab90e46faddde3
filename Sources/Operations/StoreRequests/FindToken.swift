package import TokenStore

/// Looks up the age, size and expiry of one token, without the token.
package struct FindToken: StoreRequest {
    package static let name = StoreRequestName.find
    package var id: String

    package struct Reply: Codable, Sendable {
        package var isFound: Bool
        /// Bytes of the token info.
        package var size: Int?
        /// Seconds since 1970.
        package var writtenAt: Int64?
        /// The expiration date in the token info, in seconds since 1970; nil without one.
        package var expiresAt: Int64?

        private enum CodingKeys: String, CodingKey {
            case isFound = "found"
            case size, writtenAt, expiresAt
        }
    }

    package func act(_ reply: Reply) -> OperatorAct? {
        .done("look-up of one token", reply.isFound ? "found" : "not found")
    }

    package init(id: String) {
        self.id = id
    }

    package func answer(
        _ administrator: any StoreAdministrator, _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> Reply {
        let facts = try await administrator.facts(of: try StoredText.id(id))
        return Reply(
            isFound: facts != nil, size: facts?.size, writtenAt: facts?.writtenAt, expiresAt: facts?.expiresAt)
    }
}
