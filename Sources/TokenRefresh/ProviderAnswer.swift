#if TokenRefresh
/// What became of a request to the provider.
enum ProviderResponse: Sendable {
    /// An answer with a status; its body is complete unless the connection was lost or the body is too long.
    case answered(status: Int, body: [UInt8], isComplete: Bool, retryAfter: Int?)
    /// The provider has received nothing of it.
    case notSent(ProviderFault)
    /// It was sent, and no answer has come, or only the beginning of one.
    case lost(ProviderFault)
}

/// Why an exchange failed; the raw values are values of a metric's label.
enum ProviderFault: String, Sendable, CaseIterable {
    /// There is no connection to the provider, or its certificate is not valid.
    case unreachable
    /// It has not answered in time.
    case timeout
    /// The connection was lost, or the answer is not whole.
    case lost
    /// It says that it cannot answer at the moment (5xx).
    case unavailable
    /// It asks for fewer requests (429).
    case limited
    /// It does not accept this server's client id or secret, or the secret cannot be read.
    case client
    /// It does not accept the request, for a reason that may pass.
    case rejected
    /// Its answer is not that of a token endpoint.
    case unreadable
}

/// What an exchange has come to.
enum ProviderOutcome: Sendable {
    case tokens(ProviderTokens)
    /// The token is dead.
    case refused
    /// The token was not used up; this one is tried again later, and others are not affected.
    ///
    /// - isExplained: Whether the answer has an error of OAuth.
    case rejected(isExplained: Bool)
    /// The token was not used up, but the provider has failed; it is left alone for a while.
    case failed(ProviderFault, retryAfter: Int?)
    /// Nobody knows whether the token was used up.
    case unknown(ProviderFault, retryAfter: Int?)
}

/// The answer to a successful exchange (RFC 6749, section 5.1).
struct ProviderTokens: Sendable {
    private let members: JSONMembers

    /// Nil for an answer without a token.
    init?(_ members: JSONMembers) {
        guard members.string("access_token") != nil else { return nil }
        self.members = members
    }

    var names: [String] { members.names }

    /// A member's value as JSON text.
    func value(_ name: String) -> [UInt8]? { members.value(name) }

    var expiresIn: Int64? { members.number("expires_in") }

    /// In seconds; nil if it is unknown.
    func lifetime(at now: Int64) -> Int64? {
        [expiresIn, EndMember(members).map { $0.seconds - now }].lazy.compactMap(\.self).first { $0 > 0 }
    }

    /// Whether it has a refresh token; an empty one or null is none.
    var hasRefreshToken: Bool { members.string("refresh_token") != nil }
    var hasIDToken: Bool { members.string("id_token") != nil }

    /// Whether the refresh token that was sent remains valid: the answer has the same one, or none.
    func keeps(_ refreshToken: [UInt8]?) -> Bool { members.string("refresh_token").map { $0 == refreshToken } ?? true }
}

extension JSONMembers {
    /// Whether the description of an error is about the refresh token.
    fileprivate var speaksOfRefreshToken: Bool {
        String(decoding: string("error_description") ?? [], as: UTF8.self).lowercased().contains("refresh token")
    }
}

extension ProviderOutcome {
    /// Judges by what servers do, which is not always what RFC 6749 says: glewlwyd answers 400 without a body to everything, GitHub
    /// 200 to errors, and to a dead token with a word of its own; league/oauth2-server 8 answers 401 and `invalid_request` to one; and
    /// Auth0 401 and `access_denied` to a wrong secret.
    init(_ response: ProviderResponse, of kind: RefreshProvider.Kind) {
        switch response {
        case .notSent(let fault): self = .failed(fault, retryAfter: nil)
        case .lost(let fault): self = .unknown(fault, retryAfter: nil)
        case .answered(let status, let body, let isComplete, let retryAfter):
            // A byte order mark may be ignored (RFC 8259, section 8.1). An object that is whole counts even if the transfer was cut off
            // after it.
            let body = body.starts(with: [0xef, 0xbb, 0xbf]) ? Array(body[3...]) : body
            let members = JSONMembers(body)
            let isSuccess = (200..<300).contains(status)
            if isSuccess, let tokens = members.flatMap(ProviderTokens.init) {
                self = .tokens(tokens)
            } else if isSuccess, members?.value("error") == nil {
                // A page, such as that with which a network asks for a login, does not come from the token endpoint. Anything else may.
                let first = body.first { !" \t\r\n".utf8.contains($0) }
                let isObject = first == UInt8(ascii: "{") || first == nil && !isComplete
                self =
                    first == UInt8(ascii: "<")
                    ? .failed(.unreadable, retryAfter: retryAfter)
                    : .unknown(isObject ? .lost : .unreadable, retryAfter: nil)
            } else {
                self = Self.error(status, members, retryAfter, kind)
            }
        }
    }

    private static func error(
        _ status: Int, _ members: JSONMembers?, _ retryAfter: Int?, _ kind: RefreshProvider.Kind
    ) -> ProviderOutcome {
        if kind == .facebook, let error = members?.value("error").flatMap({ JSONMembers($0) }),
            let code = error.number("code")
        {
            switch code {
            case 190: return .refused
            // Limits of the app, the user and the page; calls too fast.
            case 4, 17, 32, 341, 613: return .failed(.limited, retryAfter: retryAfter)
            // The app id or its secret is wrong.
            case 1 where status == 400, 101: return .failed(.client, retryAfter: retryAfter)
            default: break
            }
        }
        let word = members?.string("error").map { String(decoding: $0, as: UTF8.self) }
        switch (status, word) {
        case (200..<500, "invalid_grant"), (200..<500, "bad_refresh_token"): return .refused
        case (401, "invalid_request") where members?.speaksOfRefreshToken == true: return .refused
        case (429, _), (_, "slow_down"): return .failed(.limited, retryAfter: retryAfter)
        case (401, nil), (_, "invalid_client"), (_, "unauthorized_client"), (_, "unsupported_grant_type"),
            (_, "incorrect_client_credentials"), (401, "access_denied"):
            return .failed(.client, retryAfter: retryAfter)
        // Gateways say so when they have lost the provider's answer, Cloudflare with numbers of its own. Some say 503 then; a provider
        // that is down for a while usually adds Retry-After.
        case (502, _), (504, _), (520, _), (524, _): return .unknown(.lost, retryAfter: retryAfter)
        case (503, _) where members?.value("error") == nil && retryAfter == nil:
            return .unknown(.unavailable, retryAfter: retryAfter)
        case (500..., _), (_, "temporarily_unavailable"), (_, "server_error"):
            return .failed(.unavailable, retryAfter: retryAfter)
        case (200..<300, _), (400..<500, _): return .rejected(isExplained: members?.value("error") != nil)
        default: return .failed(.unreadable, retryAfter: retryAfter)
        }
    }
}
#endif
