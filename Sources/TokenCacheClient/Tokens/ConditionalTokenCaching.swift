/// A cache that several devices share, and that can tell whether another one has written meanwhile.
protocol ConditionalTokenCaching: TokenCaching {
    /// The user's token, and which version of it that is.
    func fetchVersion() async throws -> VersionedToken

    /// Stores or clears if nobody else has written meanwhile.
    ///
    /// - Parameters:
    ///   - information: The token; nil clears.
    ///   - base: What must be there.
    /// - Returns: What is there now.
    /// - Throws: `TokenCacheError.conflict` if something else is there.
    func replace(_ base: TokenBase, with information: TokenInformation?) async throws -> TokenBase
}

/// A token of a shared cache.
struct VersionedToken: Sendable {
    /// Nil: there is surely none.
    var information: TokenInformation?
    var base: TokenBase
}

/// What a write is based on.
enum TokenBase: Sendable, Hashable, Codable {
    /// Nothing is known, or the cache has no versions: a write replaces whatever is there.
    case anything
    /// Nothing was stored.
    case nothing
    /// The entity tag of what was stored (RFC 9110, section 8.8.3), as it came, with its quotes.
    case version(String)
}
