/// What a store's library, disk or server has said of an operation, in words that every store shares.
package struct StoreFault: Hashable, Sendable, CustomStringConvertible {
    package let cause: StoreError.Cause
    /// Whether the operation may succeed later by itself: no room, or somebody else's lock.
    package let mayRetry: Bool
    /// Whether one token alone is to blame, so that others are stored.
    package let isOfOneToken: Bool
    /// For people; holds no part of a token.
    package let description: String

    package init(
        _ description: String, cause: StoreError.Cause = .database, mayRetry: Bool = false, isOfOneToken: Bool = false
    ) {
        self.description = description
        self.cause = cause
        self.mayRetry = mayRetry
        self.isOfOneToken = isOfOneToken
    }
}
