/// What an operator may know of a token without seeing it.
package struct TokenFacts: Hashable, Sendable {
    /// Bytes of the token info.
    package let size: Int
    /// Seconds since 1970.
    package let writtenAt: Int64
    /// The expiration date in the token info, in seconds since 1970; nil without one.
    package let expiresAt: Int64?

    package init(size: Int, writtenAt: Int64, expiresAt: Int64?) {
        self.size = size
        self.writtenAt = writtenAt
        self.expiresAt = expiresAt
    }
}
