/// A store that no server has open, for the work that needs it so; locked until this is released.
package protocol OfflineStore: AnyObject {
    /// Puts a backup in the place of the store.
    ///
    /// - Parameters:
    ///   - path: What `StoreBackups` has written.
    ///   - progress: Counted in tokens.
    func restore(
        _ path: String, _ progress: (StoreProgress) -> Void
    ) throws(StoreError) -> StoreReplacement

    /// Seals a store in the clear, or the other way round.
    ///
    /// - Parameters:
    ///   - isSealed: As the store is to be.
    ///   - progress: Counted in tokens.
    func convert(isSealed: Bool, _ progress: (StoreProgress) -> Void) throws(StoreError) -> StoreReplacement
}

/// What was put in the place of a store.
package struct StoreReplacement: Codable, Sendable {
    package var tokens: Int
    package var bytes: Int
    package var isSealed: Bool

    package init(tokens: Int, bytes: Int, isSealed: Bool) {
        self.tokens = tokens
        self.bytes = bytes
        self.isSealed = isSealed
    }
}
