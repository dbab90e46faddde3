public import Foundation

/// The user's token on a server that speaks the guide's `token.php`: token-cache, or the script itself.
///
/// An answer counts only if it has status 200, is JSON of the contract's shape and comes from the URL that was asked.
/// Everything else, from a captive portal's page to a redirection, is an error, after which it is unknown whether there is a
/// token.
///
/// Where the server sends entity tags (token-cache in every mode but `open`), a write that follows a fetch or another write is
/// stored only if no other device has written in between; otherwise it throws `TokenCacheError.conflict`. Without them the last
/// write wins.
///
/// Copies share what they know of the server. Usable from any task.
public struct RemoteTokenCache: TokenCaching {
    /// Longer answers are refused: token-cache itself accepts no body beyond `limits.body`, by default 1 MiB.
    public static let answerLimit = 8 << 20

    let url: URL
    private let identity: Identity
    private let transport: any Transport
    private let retries: RetryPolicy
    private let looksForSpaces: Bool
    private let clock: any Clock<Duration>
    private let random: @Sendable () -> Double
    private let known = Locked(TokenBase.anything)

    /// A cache for one user.
    ///
    /// - Parameters:
    ///   - url: That of the script, such as `https://tokens.example.com/token.php`. Nothing secret may be sent by `http:`,
    ///     which is for tests on one machine.
    ///   - identity: Whom the token belongs to.
    ///   - transport: How requests are sent.
    ///   - retries: When requests are sent again, and how long all of it may take.
    ///   - looksForSpaces: Whether to ask for the id with a space in place of each `+` if nothing is stored under the id
    ///     itself. The guide's sample does not escape its ids, so what it stored is there. Only for ids of which no two differ
    ///     in that alone: otherwise it is another user's token.
    /// - Throws: `TokenCacheError.invalidURL`, or `.invalidID` if the server would refuse the id or change it.
    public init(
        url: URL, identity: Identity, transport: any Transport = .urlSession, retries: RetryPolicy = RetryPolicy(),
        looksForSpaces: Bool = false
    ) throws(TokenCacheError) {
        try self.init(
            url: url, identity: identity, transport: transport, retries: retries, looksForSpaces: looksForSpaces,
            clock: ContinuousClock(), random: { Double.random(in: 0...1) }
        )
    }

    init(
        url: URL, identity: Identity, transport: any Transport, retries: RetryPolicy, looksForSpaces: Bool = false,
        clock: any Clock<Duration>, random: @escaping @Sendable () -> Double
    ) throws(TokenCacheError) {
        guard let scheme = url.scheme?.lowercased(), ["https", "http"].contains(scheme), url.host()?.isEmpty == false,
            url.query() == nil, url.fragment() == nil
        else { throw .invalidURL }
        if case .uniqueID(let id) = identity { try Self.check(uniqueID: id) }
        self.url = url
        self.identity = identity
        self.transport = transport
        self.retries = retries
        self.looksForSpaces = looksForSpaces
        self.clock = clock
        self.random = random
    }

    // MARK: - Fetching

    /// The token on the server; nil if nothing is stored there, or what is stored says that there is none.
    public func fetch() async throws -> TokenInformation? {
        try await fetchVersion().information
    }

    // MARK: - Storing

    /// Stores the token; unless the server has no versions, only in place of what was last fetched or stored here.
    ///
    /// - Throws: `TokenCacheError.conflict` with what is there, if another device has written since.
    public func cache(_ information: TokenInformation) async throws {
        _ = try await replace(known.withLock { $0 }, with: information)
    }

    /// Stores that there is no token, whatever is there.
    public func clear() async throws {
        _ = try await replace(.anything, with: nil)
    }

    // MARK: - Requests

    private struct Answered {
        let answer: ServerAnswer
        let base: TokenBase
    }

    /// Sends a request until there is an answer of the contract, an error that will stay, or no time.
    private func ask(_ method: String, _ parameters: [(String, String)], _ fields: [String: String]) async throws
        -> Answered
    {
        let elapsed = clock.stopwatch()
        let isRepeatable = method == "GET" || !fields.isEmpty
        return try await withTimeLimit(retries.deadline, clock: clock) { [self] in
            var attempt = 1
            while true {
                do {
                    return try await askOnce(method, parameters, fields)
                } catch let error as TokenCacheError {
                    guard
                        let delay = retries.delay(
                            after: error, attempt: attempt, isRepeatable: isRepeatable, random: random()),
                        elapsed() + delay < retries.deadline
                    else { throw error }
                    try await clock.sleep(for: delay)
                    attempt += 1
                }
            }
        }
    }

    private func askOnce(_ method: String, _ parameters: [(String, String)], _ fields: [String: String]) async throws
        -> Answered
    {
        var (parameters, headers) = (parameters, fields)
        headers["Accept"] = "application/json"
        switch identity {
        case .uniqueID(let id):
            if !parameters.contains(where: { $0.0 == "unique_id" }) { parameters.insert(("unique_id", id), at: 0) }
        case .session(let supply):
            let session = try await supply()
            try Self.check(session: session)
            headers["Authorization"] = "Bearer " + session
        }
        let form = parameters.map { $0.0 + "=" + FormEncoding.escaped($0.1) }.joined(separator: "&")
        var target = url
        var body: Data?
        if method == "POST" {
            body = Data(form.utf8)
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        } else if !form.isEmpty {
            // Appended as text: URLComponents would not escape the plus sign, which stands for a space in forms.
            guard let whole = URL(string: url.absoluteString + "?" + form) else { throw TokenCacheError.invalidURL }
            target = whole
        }
        let response = try await transport.send(
            TransportRequest(
                method: method, url: target, headers: headers, body: body, timeout: retries.attemptTimeout)
        )
        let answer = try ServerAnswer(response, to: target, isFetch: method == "GET")
        return Answered(answer: answer, base: base(after: answer, response))
    }

    private func base(after answer: ServerAnswer, _ response: TransportResponse) -> TokenBase {
        if let tag = response.headers["etag"], !tag.isEmpty { return .version(tag) }
        // In mode `open`, the server looks at no conditions.
        if case .nothing = answer, case .session = identity { return .nothing }
        return .anything
    }
}

extension RemoteTokenCache: CustomStringConvertible, CustomReflectable {
    /// The server, and not whose token it is.
    public var description: String { "RemoteTokenCache(\(url.host() ?? ""))" }

    /// A mirror without the identity.
    public var customMirror: Mirror { Mirror(self, children: ["host": url.host() ?? ""]) }
}

extension RemoteTokenCache: ConditionalTokenCaching {
    func fetchVersion() async throws -> VersionedToken {
        let answered = try await ask("GET", [], [:])
        // Before the text is read: what cannot be read can be replaced.
        known.withLock { $0 = answered.base }
        switch answered.answer {
        case .found(let text):
            return VersionedToken(information: try TokenInformation(text: text), base: answered.base)
        case .nothing, .stored:
            return VersionedToken(information: try await fetchUnderSpaces(), base: answered.base)
        }
    }

    /// What the guide's sample has stored under an id with plus signs, if the app asked to look for it.
    private func fetchUnderSpaces() async throws -> TokenInformation? {
        guard looksForSpaces, case .uniqueID(let id) = identity, id.contains("+") else { return nil }
        let changed = id.map { $0 == "+" ? " " : String($0) }.joined()
        guard case .found(let text) = try await ask("GET", [("unique_id", changed)], [:]).answer else { return nil }
        return try TokenInformation(text: text)
    }

    func replace(_ base: TokenBase, with information: TokenInformation?) async throws -> TokenBase {
        let text = information?.text ?? TokenInformation.noneText
        let fields: [String: String] =
            switch base {
            case .anything: [:]
            case .nothing: ["If-None-Match": "*"]
            case .version(let tag): ["If-Match": tag]
            }
        do {
            let new = try await ask("POST", [("token_info", text)], fields).base
            known.withLock { $0 = new }
            return new
        } catch TokenCacheError.refused(status: 412, _) {
            let current = try await fetchVersion()
            // It was this write that the first of several attempts stored, without its answer arriving.
            if current.information?.text ?? TokenInformation.noneText == text { return current.base }
            throw TokenCacheError.conflict(current: current.information)
        } catch TokenCacheError.refused(status: 428, _) where base == .anything {
            // The server wants a condition: what is there now.
            return try await replace(fetchVersion().base, with: information)
        }
    }
}
