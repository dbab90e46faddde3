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

/// What a cache has, and which version of it that is.
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
    /// What a device has added to the token that it refreshes, see `RefreshLease`.
    var lease: String?

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
