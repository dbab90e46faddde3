/// Where a user's token is kept: on the device, on the server, or first there and then here.
///
/// The difference between *none* and *unknown* is the contract: `fetch` returns nil only if there is surely no token, and
/// throws if that cannot be known, for example without a network. Nothing in this library takes unknown for signed out, and
/// an implementation must not either.
public protocol TokenCaching: Sendable {
    /// The user's token.
    ///
    /// - Returns: nil: there is surely none.
    /// - Throws: An error if it is unknown whether there is one; `TokenCacheError.unreadable` if something is there that
    ///   nobody can read, which the next token replaces.
    func fetch() async throws -> TokenInformation?

    /// Stores a token in place of the one that was there.
    ///
    /// - Throws: An error if it is not certain that the token is stored.
    func store(_ information: TokenInformation) async throws

    /// Removes the token; it is no error if there is none.
    ///
    /// - Throws: An error if it is not certain that it is gone.
    func clear() async throws
}

/// A cache of the device, which several sessions and processes share.
protocol SharedTokenCaching: TokenCaching {
    /// Waits until nobody else refreshes the user's token, and then keeps others from it for a limited time.
    ///
    /// - Returns: What another session or process has stored in place of the old token, so that it need not be refreshed.
    func beginRefresh(of old: TokenInformation) async -> TokenInformation?

    /// Lets others refresh; storing a token does so as well.
    func endRefresh() async

    /// Whether a write has not reached the server yet.
    func isWriteWaiting() async -> Bool

    /// Has a function called with each error after which nothing is sent until something changes.
    func report(to report: @escaping @Sendable (any Error) -> Void)
}

/// A cache that several devices share, and that can tell whether another one has written meanwhile.
protocol VersionedTokenCaching: TokenCaching {
    /// What is there, and which version of it that is.
    func fetchVersion() async throws -> VersionedToken

    /// Stores or clears if nobody else has written meanwhile.
    ///
    /// - Parameters:
    ///   - base: What must be there.
    ///   - information: The token; nil clears.
    ///   - logins: What clearing ends, for other devices to know.
    /// - Returns: What is there now.
    /// - Throws: `TokenCacheError.conflict` if something else is there.
    func replace(_ base: TokenBase, with information: TokenInformation?, ending logins: Set<String>) async throws
        -> TokenBase
}

/// What a shared cache has.
struct VersionedToken: Sendable {
    enum Content: Sendable {
        case token(TokenInformation)
        /// There is surely none: somebody has signed out, which has ended these logins, or the server has never had one.
        case none(ended: Set<String> = [])
        /// There is none, and the answer does not tell whether that is so because the server has failed.
        case nothingFound
        /// Something is there that cannot be read, and may be replaced.
        case unreadable(TokenCacheError)
    }

    var content: Content
    var base: TokenBase

    /// The token, if there is one that can be read.
    var information: TokenInformation? {
        if case .token(let information) = content { information } else { nil }
    }

    /// Whether it is what a write of this token, or a sign-out that ends these logins, leaves.
    func holds(_ information: TokenInformation?, orEnded logins: Set<String>) -> Bool {
        if case .none(let ended) = content { return information == nil && logins.isSubset(of: ended) }
        return information != nil && self.information == information
    }

    /// The logins that a sign-out has ended.
    var endedLogins: Set<String> {
        if case .none(let ended) = content { ended } else { [] }
    }

    /// Whether it is unknown why nothing is there.
    var isUnexplained: Bool {
        if case .nothingFound = content { true } else { false }
    }
}

/// What a write is based on.
enum TokenBase: Sendable, Hashable, Codable {
    /// Nothing is known: a write replaces whatever is there.
    case anything
    /// Nothing was stored.
    case nothing
    /// The entity tag of what was stored (RFC 9110, section 8.8.3), as it came, with its quotes.
    case version(String)
    /// The hash of what was stored, of a cache without versions: it is compared before a write, which takes a moment in which
    /// another device can write.
    case content(String)

    init(contentOf text: String?) {
        self = .content(text.map(SHA256.hexadecimal) ?? "")
    }

    /// For a write right after a fetch: what would only be compared by another one is not compared again.
    var justFetched: TokenBase {
        if case .content = self { .anything } else { self }
    }
}

/// What shows the server whose token a request is for.
struct Credential: Sendable, Hashable, Codable {
    var isSession: Bool
    var text: String
}

extension TokenCaching {
    /// What is there, with its version.
    func fetchWithBase() async throws -> VersionedToken {
        if let versioned = self as? any VersionedTokenCaching { return try await versioned.fetchVersion() }
        do {
            let information = try await fetch()
            return VersionedToken(
                content: information.map { .token($0) } ?? .none(), base: TokenBase(contentOf: information?.text))
        } catch let error as TokenCacheError {
            guard case .unreadable = error else { throw error }
            return VersionedToken(content: .unreadable(error), base: .anything)
        }
    }

    /// Stores or clears, if what is there is what the write is based on.
    func write(_ information: TokenInformation?, replacing base: TokenBase, ending logins: Set<String>) async throws
        -> TokenBase
    {
        if let versioned = self as? any VersionedTokenCaching {
            return try await versioned.replace(base, with: information, ending: logins)
        }
        if base != .anything {
            let current = try await fetchWithBase()
            if current.base != base { throw TokenCacheError.conflict(current: current.information) }
        }
        if let information {
            try await store(information)
        } else {
            try await clear()
        }
        return TokenBase(contentOf: information?.text)
    }
}
