public import Foundation

/// The user's token on a server that speaks the guide's `token.php`: token-cache, or the script itself.
///
/// An answer counts only if it has status 200, is JSON of the contract's shape and comes from the URL that was asked.
/// Everything else, from a captive portal's page to a redirection, is an error, after which it is unknown whether there is a
/// token.
///
/// A write that follows a fetch or another write is stored only if no other device has written in between; otherwise it throws
/// `TokenCacheError.conflict`. The server decides that by entity tags (token-cache in every mode but `open`). Without strong
/// ones, the cache fetches and compares just before the write, so that the last of two simultaneous writes wins.
///
/// Copies share what they know about the server. Usable from any task.
public struct RemoteTokenCache: TokenCaching {
    let url: URL
    private let identity: Identity
    private let transport: any Transport
    private let timeout: Duration
    private let known = Locked(Known())

    /// What copies share.
    private struct Known {
        var base = TokenBase.anything
        /// The token of that base, if it was fetched.
        var information: TokenInformation?
        /// Whether the server has answered with an expired token that it will refresh later.
        var isLate = false
        /// The session that was sent last.
        var session: String?
    }

    /// A cache for one user.
    ///
    /// - Parameters:
    ///   - url: The script's URL, such as `https://tokens.example.com/token.php`. With `http:`, which is for tests, the host must be
    ///     a loopback address or `localhost`. On Linux, `URLSession` refuses IPv6 addresses.
    ///   - identity: Whom the token belongs to.
    ///   - transport: How requests are sent.
    ///   - timeout: How long a request may take. It is not repeated; a `LayeredTokenCache` tries writes again.
    /// - Throws: `TokenCacheError.invalidURL`, or `.invalidID` if the server would refuse the id or change it.
    public init(
        url: URL, identity: Identity, transport: any Transport = URLSessionTransport.shared,
        timeout: Duration = .seconds(10)
    ) throws(TokenCacheError) {
        guard let scheme = url.scheme?.lowercased(), let host = url.host()?.lowercased(), !host.isEmpty,
            scheme == "https" || scheme == "http" && Self.isThisMachine(host), url.query() == nil, url.fragment() == nil
        else { throw .invalidURL }
        #if !canImport(Darwin)
        if host.contains(":"), transport is URLSessionTransport { throw .invalidURL }
        #endif
        if case .uniqueID(let id) = identity { try Self.check(uniqueID: id) }
        // On Linux, URLSession knows schemes only in lower case.
        guard let url = URL(string: scheme + url.absoluteString.dropFirst(scheme.count)) else { throw .invalidURL }
        self.url = url
        self.identity = identity
        self.transport = transport
        self.timeout = timeout
    }

    private static func isThisMachine(_ host: String) -> Bool {
        let parts = host.split(separator: ".", omittingEmptySubsequences: false).map(String.init)
        // Many resolvers take a number with leading zeros for an octal one.
        return ["localhost", "::1", "[::1]"].contains(host)
            || parts.count == 4 && parts[0] == "127" && parts.allSatisfy { UInt8($0).map(String.init) == $0 }
    }

    /// A cache for the same server and transport with another credential; nil if that is not valid.
    func cache(by credential: Credential) -> RemoteTokenCache? {
        try? RemoteTokenCache(
            url: url, identity: credential.isSession ? .session { _ in credential.text } : .uniqueID(credential.text),
            transport: transport, timeout: timeout)
    }

    /// The credential with which a request can be sent without the app; nil before the first session is supplied.
    var credential: Credential? {
        let text: String? =
            switch identity {
            case .uniqueID(let id): id
            case .session: known.withLock { $0.session }
            }
        return text.map { Credential(isSession: isBySession, text: $0) }
    }

    private var isBySession: Bool {
        if case .session = identity { true } else { false }
    }

    // MARK: - Fetching and storing

    /// The token on the server; nil if nothing is stored there, or a sign-out.
    public func fetch() async throws -> TokenInformation? {
        let found = try await fetchVersion()
        if case .unreadable(let error) = found.content { throw error }
        return found.information
    }

    /// Stores the token, in place of what was last fetched or stored here.
    ///
    /// - Throws: `TokenCacheError.conflict` with what is there, if another device has written since.
    public func store(_ information: TokenInformation) async throws {
        _ = try await replace(known.withLock { $0.base }, with: information)
    }

    /// Replaces whatever is stored by a sign-out; logins that another device has ended stay ended.
    public func clear() async throws {
        // Limited, as another device could write first again and again.
        for _ in 0..<5 {
            let found = try await fetchVersion()
            do {
                _ = try await replace(found.base.justFetched, with: nil, ending: found.endedLogins)
                return
            } catch TokenCacheError.conflict {}
        }
        throw TokenCacheError.unavailable(status: 412, retryAfter: nil)
    }

    // MARK: - Requests

    /// Sends a request, and once more if its session was refused and the app has another one.
    private func ask(_ method: String, _ parameters: [(String, String)], _ fields: [String: String]) async throws
        -> ServerAnswer
    {
        let supply: @Sendable (String?) async throws -> String
        switch identity {
        case .uniqueID(let id): return try await send(method, [("unique_id", id)] + parameters, fields)
        case .session(let closure): supply = closure
        }
        var refused: (session: String, detail: String)?
        while true {
            let session = try await supply(refused?.session)
            if let refused, refused.session == session { throw TokenCacheError.unauthorized(detail: refused.detail) }
            try Self.check(session: session)
            known.withLock { $0.session = session }
            do {
                return try await send(method, parameters, fields, ["Authorization": "Bearer " + session])
            } catch TokenCacheError.unauthorized(let detail) where refused == nil {
                refused = (session, detail)
            } catch TokenCacheError.refused(let status, "30001", let detail) {
                // As from a server without sessions, for which the request has no id.
                throw TokenCacheError.refused(
                    status: status, code: "30001", detail: detail + "; does it take sessions (access.mode)?")
            }
        }
    }

    private func send(
        _ method: String, _ parameters: [(String, String)], _ fields: [String: String], _ more: [String: String] = [:]
    ) async throws -> ServerAnswer {
        var headers = fields.merging(more) { _, new in new }
        headers["Accept"] = "application/json"
        let form = parameters.map { $0.0 + "=" + Self.escaped($0.1) }.joined(separator: "&")
        var target = url
        var body: Data?
        if method == "POST" {
            body = Data(form.utf8)
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        } else if !form.isEmpty {
            // Appended as text, as URLComponents would not escape the plus sign, which stands for a space in forms.
            guard let whole = URL(string: url.absoluteString + "?" + form) else { throw TokenCacheError.invalidURL }
            target = whole
        }
        let request = TransportRequest(method: method, url: target, headers: headers, body: body, timeout: timeout)
        let response = try await withTimeLimit(timeout, clock: ContinuousClock()) { [transport] in
            try await transport.send(request)
        }
        return try ServerAnswer(response, to: target, isFetch: method == "GET")
    }

    /// Escapes everything but RFC 3986's unreserved characters (section 2.3), byte by byte in UTF-8.
    private static func escaped(_ text: String) -> String {
        text.addingPercentEncoding(withAllowedCharacters: unreserved) ?? ""
    }

    static let unreserved = CharacterSet(
        charactersIn: "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
}

extension RemoteTokenCache: CustomStringConvertible, CustomReflectable {
    /// The server's host, without the identity.
    public var description: String { "RemoteTokenCache(\(url.host() ?? ""))" }

    /// A mirror without the identity.
    public var customMirror: Mirror { Mirror(self, children: ["host": url.host() ?? ""]) }
}

extension RemoteTokenCache {
    // MARK: - Versions

    /// What is there, and which version of it that is.
    func fetchVersion() async throws -> VersionedToken {
        let before = known.withLock { $0.base }
        let answer = try await ask("GET", [], [:])
        let base = base(after: answer)
        var found = VersionedToken(content: content(of: answer), base: base)
        found.takeLease()
        known.withLock { known in
            known.isLate = answer.isLate
            // Otherwise something was written meanwhile, and the answer may be older.
            guard known.base == before else { return }
            // The same version stays as it is: a token without a date would get a new one.
            if base == before, found.information != nil, let same = known.information { found.content = .token(same) }
            (known.base, known.information) = (base, found.information)
        }
        return found
    }

    /// The error if the server will have another token later in the place of an expired one.
    ///
    /// It says so for good of a token that its provider refuses without a reason, so that counts for an hour.
    func obstacle(to information: TokenInformation, at time: Date) -> TokenCacheError? {
        guard known.withLock({ $0.isLate }), !information.isExpired(at: time - 3_600) else { return nil }
        return .unavailable(status: 200, retryAfter: nil)
    }

    private func content(of answer: ServerAnswer) -> VersionedToken.Content {
        guard case .found(let text) = answer.content else {
            // A store that is empty by mistake, such as on a disk that is not mounted, knows no session either.
            return isBySession && credential?.text.hasPrefix("tcs_") == true ? .none() : .nothingFound
        }
        do {
            let information = try TokenInformation(text: text)
            return information.map { .token($0) } ?? .none(ended: TokenInformation.endedLogins(in: text))
        } catch {
            return .unreadable(error)
        }
    }

    private func base(after answer: ServerAnswer) -> TokenBase {
        if let tag = answer.entityTag { return .version(tag) }
        switch answer.content {
        case .found(let text): return TokenBase(contentOf: text)
        // In mode `open`, the server looks at no conditions.
        case .nothing, .stored: return isBySession ? .nothing : TokenBase(contentOf: nil)
        }
    }

    /// Stores or clears if no other device has written meanwhile.
    ///
    /// - Parameters:
    ///   - base: What must be there.
    ///   - information: The token; nil clears.
    ///   - logins: The logins that clearing ends, so that other devices know.
    ///   - lease: What is added to the token.
    /// - Returns: What is there now.
    /// - Throws: `TokenCacheError.conflict` if something else is there.
    func replace(
        _ base: TokenBase, with information: TokenInformation?, ending logins: Set<String> = [], lease: String? = nil
    ) async throws -> TokenBase {
        let text = information?.text(with: lease) ?? TokenInformation.noneText(ending: logins)
        let fields: [String: String] =
            switch base {
            case .anything, .content: [:]
            case .nothing: ["If-None-Match": "*"]
            case .version(let tag): ["If-Match": tag]
            }
        if case .content = base {
            let current = try await fetchVersion()
            // An empty answer may be a failure of the server; a sign-out by another device would have stored something.
            if current.base != base, !current.isUnexplained {
                throw TokenCacheError.conflict(current: current.information)
            }
        }
        do {
            return try await post(text, fields)
        } catch TokenCacheError.refused(status: 412, _, _) {
            let current = try await fetchVersion()
            // An earlier attempt has stored this write, and its answer was lost.
            if current.holds(information, orEnded: logins), lease == nil || lease == current.lease {
                return current.base
            }
            // Nobody else has written: a proxy has made the entity tag weak, which never matches (RFC 9110, section 13.1.1).
            if current.base == base, lease == nil { return try await post(text, [:]) }
            throw TokenCacheError.conflict(current: current.information)
        } catch TokenCacheError.refused(status: 428, _, _) where base == .anything {
            // The server requires a condition, so the write is based on what is there now.
            return try await replace(fetchVersion().base, with: information, ending: logins)
        }
    }

    private func post(_ text: String, _ fields: [String: String]) async throws -> TokenBase {
        let answer = try await ask("POST", [("token_info", text)], fields)
        let new = answer.entityTag.map(TokenBase.version) ?? TokenBase(contentOf: text)
        known.withLock { ($0.base, $0.information) = (new, nil) }
        return new
    }
}
