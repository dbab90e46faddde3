/// Checks the whole of an open store.
package protocol StoreVerifier: Sendable {
    /// Checks the store's structure, and opens every row.
    ///
    /// - Parameter progress: Counted in tokens.
    func verify(_ progress: @escaping @Sendable (StoreProgress) -> Void) async throws(StoreError) -> StoreVerification
}

/// What a verification has found.
package struct StoreVerification: Codable, Sendable {
    package var tokens = 0
    /// Rows that do not open, by what is wrong with them.
    package var unreadable: [String: Int] = [:]
    /// What is wrong with the structure; empty when it is sound.
    package var damages: [String] = []
    /// The number of tokens that the store has counted, if that is not the number of rows; nil also if the store was changed
    /// during the verification.
    package var wrongCount: Int?
    /// Copies of damaged WALs that are kept beside the store, in which there may be tokens that it lacks.
    package var keptCopies: [String] = []

    /// Whether the store has every token, and every token opens.
    package var isSound = true

    package init() {}
}
