/// An error of a store's library, disk or server, in the terms that all stores share.
package struct StoreFault: Hashable, Sendable, CustomStringConvertible {
    package let cause: StoreError.Cause
    /// Whether the operation may succeed later without intervention: the disk is full, or something is locked.
    package let mayRetry: Bool
    /// Whether the error concerns one token only, so that others can be stored.
    package let isOfOneToken: Bool
    /// Text for operators; contains no part of a token.
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
