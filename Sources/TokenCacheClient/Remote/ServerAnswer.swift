import Foundation

/// A valid answer of the server.
struct ServerAnswer {
    enum Content {
        /// A token info was found, perhaps an empty one.
        case found(String)
        /// Nothing is stored.
        case nothing
        /// The token was stored.
        case stored
    }

    let content: Content
    /// The version of what is there (RFC 9110, section 8.8.3).
    let entityTag: String?
    /// Whether the server could not refresh the token yet.
    let isLate: Bool

    /// The code for an id without a token.
    private static let notFound = "50002"

    /// Reads an answer.
    ///
    /// - Parameters:
    ///   - response: The answer.
    ///   - url: The URL that was asked.
    ///   - isFetch: Whether a token info is expected.
    /// - Throws: `TokenCacheError`, for whatever is not an answer of the contract with status 200.
    init(_ response: TransportResponse, to url: URL, isFetch: Bool) throws(TokenCacheError) {
        if (300..<400).contains(response.status) { throw .redirected(status: response.status) }
        guard Self.isSame(response.url, url) else {
            throw .unexpectedAnswer(status: response.status, "it comes from another URL than the one that was asked")
        }
        let members = Self.members(response)
        let isContracts = members?["status"]?.string == "false"
        switch response.status {
        case 200: break
        case 429, 503: throw .unavailable(status: response.status, retryAfter: Self.retryAfter(response))
        // A proxy that authenticates speaks of the session as well (RFC 6750, section 3).
        case 401 where isContracts || response.headers["www-authenticate"]?.lowercased().hasPrefix("bearer") == true:
            throw .unauthorized(detail: Self.sentence(response))
        // A portal's or another proxy's, which says nothing about the session or the request.
        case _ where !isContracts:
            throw .unexpectedAnswer(status: response.status, "it is not an error of the contract")
        case 403: throw .forbidden(detail: Self.sentence(response))
        default:
            throw .refused(
                status: response.status, code: Self.code(response) ?? "none", detail: Self.sentence(response))
        }
        entityTag = response.headers["etag"].flatMap { $0.isEmpty ? nil : $0 }
        isLate = response.headers["token-refresh"]?.lowercased() == "later"
        guard let members else {
            throw .unexpectedAnswer(status: 200, "it is not a JSON object")
        }
        switch members["status"]?.string {
        case "true": break
        case "false":
            // The server needs a session, and answers an id as if it had no token (RFC 9110, section 11.6.1).
            if response.headers["www-authenticate"] != nil { throw .unauthorized(detail: Self.sentence(response)) }
            guard let code = members["errorCode"]?.string else {
                throw .unexpectedAnswer(status: 200, "it has no errorCode")
            }
            // The server has failed, whatever the field's value; its body may be the one for an id without a token.
            if response.headers["retry-after"] != nil {
                throw .unavailable(status: 200, retryAfter: Self.retryAfter(response))
            }
            guard code == Self.notFound, isFetch else {
                throw .refused(status: 200, code: code, detail: Self.sentence(response))
            }
            content = .nothing
            return
        default: throw .unexpectedAnswer(status: 200, #"its status is neither "true" nor "false""#)
        }
        guard isFetch else {
            guard members["token_info"] == nil else {
                throw .unexpectedAnswer(status: 200, "it is that of a fetch, not of a write")
            }
            content = .stored
            return
        }
        guard let text = members["token_info"]?.string else {
            throw .unexpectedAnswer(status: 200, "it has no token_info that is a string")
        }
        content = .found(text)
    }

    private static func members(_ response: TransportResponse) -> [String: TokenInformation.Value]? {
        try? JSON.value([String: TokenInformation.Value].self, response.body)
    }

    private static func code(_ response: TransportResponse) -> String? {
        guard let code = members(response)?["errorCode"]?.string, code.utf8.count <= 8,
            code.utf8.allSatisfy({ (0x30...0x39).contains($0) })
        else { return nil }
        return code
    }

    /// The server's sentence about an error, which contains no secrets.
    private static func sentence(_ response: TransportResponse) -> String {
        let text = members(response)?["errorMessage"]?.string ?? ""
        return String(text.prefix(200).map { $0.isASCII && !$0.isNewline ? $0 : "?" })
    }

    /// Whether two URLs lead to the same place, however the system has written them.
    private static func isSame(_ one: URL, _ other: URL) -> Bool {
        func parts(_ url: URL) -> [String?] {
            let parts = URLComponents(url: url, resolvingAgainstBaseURL: true)
            let scheme = parts?.scheme?.lowercased()
            let port = parts?.port ?? (scheme == "https" ? 443 : 80)
            let path = parts?.path ?? ""
            return [scheme, parts?.host?.lowercased(), "\(port)", path.isEmpty ? "/" : path, parts?.query]
        }
        return parts(one) == parts(other)
    }

    /// The delay of `Retry-After`, which is in seconds or a date (RFC 9110, section 10.2.3); an hour at most, so that no mistake of
    /// the server's or a proxy's silences devices for good.
    private static func retryAfter(_ response: TransportResponse) -> Duration? {
        guard let text = response.headers["retry-after"] else { return nil }
        // By the server's clock, if it shows it.
        let seconds = Double(text) ?? date(text)?.timeIntervalSince(response.headers["date"].flatMap(date) ?? Date())
        return seconds.flatMap { $0.isNaN ? nil : .seconds(min(max($0.rounded(.up), 0), 3_600)) }
    }

    /// A date of HTTP, in one of its three forms (RFC 9110, section 5.6.7).
    private static func date(_ text: String) -> Date? {
        let formatter = DateFormatter()
        formatter.locale = Locale(identifier: "en_US_POSIX")
        formatter.timeZone = TimeZone(secondsFromGMT: 0)
        return ["EEE, dd MMM yyyy HH:mm:ss zzz", "EEEE, dd-MMM-yy HH:mm:ss zzz", "EEE MMM d HH:mm:ss yyyy"].lazy
            .compactMap { format in
                formatter.dateFormat = format
                return formatter.date(from: text)
            }.first
    }
}
