/// Where a user's token is kept: on the device, on the server, or on both.
///
/// The contract is the difference between *none* and *unknown*: `fetch` returns nil only if there is surely no token, and
/// throws if that cannot be known, for example without a network. Nothing in this library takes unknown for signed out, and
/// an implementation must not either.
public protocol TokenCaching: Sendable {
    /// The user's token.
    ///
    /// - Returns: Nil if there is surely none.
    /// - Throws: An error if it is unknown whether there is one; `TokenCacheError.unreadable` if what is there cannot be read: the
    ///   next token replaces it.
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

/// A cache on this device that several sessions and processes share.
protocol SharedTokenCaching: TokenCaching {
    /// Waits until no other session refreshes the user's token, and then keeps others from doing so for a limited time.
    ///
    /// - Returns: The token with which another session or process has replaced the old one; nil if it must be refreshed.
    func beginRefresh(of old: TokenInformation) async -> TokenInformation?

    /// Lets others refresh; storing a token does so as well.
    func endRefresh() async

    /// Whether a write has not reached the server yet.
    func isWriteWaiting() async -> Bool

    /// Sets a function that is called with each error after which nothing is sent until something changes.
    func report(to report: @escaping @Sendable (any Error) -> Void)
}

/// A cache that several devices share, and that notices whether another one has written meanwhile.
protocol VersionedTokenCaching: TokenCaching {
    /// What is there, and which version of it that is.
    func fetchVersion() async throws -> VersionedToken

    /// Stores or clears if nobody else has written meanwhile.
    ///
    /// - Parameters:
    ///   - base: What must be there.
    ///   - information: The token; nil clears.
    ///   - logins: The logins that clearing ends, so that other devices know.
    /// - Returns: What is there now.
    /// - Throws: `TokenCacheError.conflict` if something else is there.
    func replace(_ base: TokenBase, with information: TokenInformation?, ending logins: Set<String>) async throws
        -> TokenBase
}

/// What a cache has, and in which version.
struct VersionedToken: Sendable {
    enum Content: Sendable {
        case token(TokenInformation)
        /// There is surely none: a sign-out has ended these logins, or the server has never had a token.
        case none(ended: Set<String> = [])
        /// The server has found none; it may have failed.
        case nothingFound
        /// What is there cannot be read, and may be replaced.
        case unreadable(TokenCacheError)
    }

    var content: Content
    var base: TokenBase

    /// The token, if there is one that can be read.
    var information: TokenInformation? {
        if case .token(let information) = content { information } else { nil }
    }

    /// Whether it is the result of writing this token or, without one, of a sign-out that ends these logins.
    func holds(_ information: TokenInformation?, orEnded logins: Set<String>) -> Bool {
        if case .none(let ended) = content { return information == nil && logins.isSubset(of: ended) }
        return information != nil && self.information == information
    }

    /// The logins that a sign-out has ended.
    var endedLogins: Set<String> {
        if case .none(let ended) = content { ended } else { [] }
    }

    /// Whether nothing was found, perhaps because the server has failed.
    var isUnexplained: Bool {
        if case .nothingFound = content { true } else { false }
    }
}

/// The state that a write expects to replace.
enum TokenBase: Sendable, Hashable, Codable {
    /// Nothing is known: a write replaces whatever is there.
    case anything
    /// Nothing was stored.
    case nothing
    /// The entity tag of what was stored (RFC 9110, section 8.8.3), with its quotes.
    case version(String)
    /// The hash of what was stored, for a cache without versions: it is compared just before a write, so that another device can
    /// still write in between.
    case content(String)

    init(contentOf text: String?) {
        self = .content(text.map(SHA256.hexadecimal) ?? "")
    }

    /// The base for a write right after a fetch, which need not fetch and compare again.
    var justFetched: TokenBase {
        if case .content = self { .anything } else { self }
    }
}

/// Shows the server whose token a request is for.
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
