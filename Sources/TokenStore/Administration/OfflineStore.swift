/// A store that no server has open, for the work that needs it so; locked until this is released.
package protocol OfflineStore: AnyObject {
    /// Puts a backup in the place of the store, without the users that were erased after it was made.
    ///
    /// - Parameters:
    ///   - path: What `StoreBackups` has written.
    ///   - keepsSessions: Whether its sessions count again; some may have been ended after it was made.
    ///   - progress: Counted in tokens.
    func restore(
        _ path: String, keepsSessions: Bool, _ progress: (StoreProgress) -> Void
    ) throws(StoreError) -> StoreReplacement
}

/// The backup that was put in the place of a store.
package struct StoreReplacement: Codable, Sendable {
    package var tokens: Int
    package var bytes: Int
    package var isSealed: Bool
    /// Users that were erased after the backup had been made, and are left out therefore.
    package var erasedUsers: Int
    /// Sessions that were left out.
    package var endedSessions: Int
    /// The numbers of the keys that its tokens are sealed with, in ascending order; nil in the clear.
    package var keyNumbers: [Int]?
    /// Tokens of the store that is gone; nil if there was none, or if it could not be read.
    package var replacedTokens: Int?

    package init(
        tokens: Int, bytes: Int, isSealed: Bool, erasedUsers: Int, endedSessions: Int, keyNumbers: [Int]?,
        replacedTokens: Int?
    ) {
        self.tokens = tokens
        self.bytes = bytes
        self.isSealed = isSealed
        self.erasedUsers = erasedUsers
        self.endedSessions = endedSessions
        self.keyNumbers = keyNumbers
        self.replacedTokens = replacedTokens
    }
}
