public import Foundation

/// An error of a cache, after which it is unknown whether there is a token.
///
/// Its description contains no token, id or session.
public enum TokenCacheError: Error, Sendable, Hashable {
    // Arguments

    /// The URL is not allowed: neither `https:` nor, on this machine, `http:`, or with a query, a fragment or, on Linux, an IPv6
    /// address.
    case invalidURL
    /// The server would refuse or change the unique id or session; with the reason.
    case invalidID(String)

    // The network

    /// No connection, or it was lost before the answer was complete; with the number of `URLError.Code` and the system's text.
    case unreachable(code: Int, detail: String = "")
    /// No complete answer before the deadline.
    case timedOut
    /// The answer is a redirection, which is never followed: it could lead to another host, or out of TLS.
    case redirected(status: Int)
    /// The answer is not one of the server's: a captive portal, a proxy, a truncated or altered answer; with what is wrong.
    case unexpectedAnswer(status: Int, String)

    // The server

    /// The session is unknown, expired or revoked (401), or the server takes no unique ids; with the server's sentence.
    case unauthorized(detail: String = "")
    /// The credential does not stand for this user (403); with the server's sentence.
    case forbidden(detail: String = "")
    /// The server asks to come back later (429, 503, or 200 if its store fails).
    case unavailable(status: Int, retryAfter: Duration?)
    /// The server has refused the request; with the code of its answer, such as 50001 or 30001, and its sentence.
    case refused(status: Int, code: String, detail: String = "")
    /// Another device has stored or cleared a token since the last fetch; with the token that is there now, nil if none is.
    ///
    /// The cache now knows that state, so storing once more replaces it.
    case conflict(current: TokenInformation?)

    // The stored item

    /// The stored token information cannot be read; with the reason.
    case unreadable(String)
    /// A later version of this library has written the item, which is left alone.
    case laterFormat(found: Int)
    /// The item is encrypted until the device is unlocked for the first time after its start.
    case locked
    /// The system refused to read or write; with the operation, the `errno` or `OSStatus`, and the system's text.
    case storage(operation: String, code: Int, detail: String = "")
}

extension TokenCacheError: CustomStringConvertible, LocalizedError {
    /// A sentence for logs.
    public var errorDescription: String? { description }

    /// A sentence for logs.
    public var description: String {
        switch self {
        case .invalidURL:
            "the URL of the token cache must begin with https:, or with http: and a host that is this machine, and have neither "
                + "query nor fragment nor, on Linux, an IPv6 address"
        case .invalidID(let reason): "the id or session cannot be used: \(reason)"
        case .unreachable(let code, let detail):
            "the server cannot be reached, or the connection was lost (URLError \(code))" + Self.suffix(detail)
        case .timedOut: "the server did not answer in time"
        case .redirected(let status):
            "the server redirects (\(status)), which is not followed; check the URL, which is usually an https one"
        case .unexpectedAnswer(let status, let reason): "the answer (\(status)) is not a token cache's: \(reason)"
        case .unauthorized(let detail):
            "the session is missing, unknown, expired or revoked; get a new one from your server" + Self.suffix(detail)
        case .forbidden(let detail): "the session does not stand for this user (403)" + Self.suffix(detail)
        case .unavailable(let status, let retryAfter):
            "the server cannot do it now (\(status))" + (retryAfter.map { " and asks to wait for \($0)" } ?? "")
        case .refused(let status, let code, let detail):
            "the server has refused the request with code \(code) (\(status))" + Self.suffix(detail)
        case .conflict(let current):
            current == nil ? "another device has cleared the token" : "another device has stored a token"
        case .unreadable(let reason): "the stored token cannot be read: \(reason)"
        case .laterFormat(let found): "the stored item has format \(found), which only later versions can read"
        case .locked: "the token is encrypted until the device is unlocked"
        case .storage(let operation, let code, let detail):
            "the system refused to \(operation) the stored token (\(code))" + Self.suffix(detail)
        }
    }

    private static func suffix(_ detail: String) -> String {
        detail.isEmpty ? "" : ": \(detail)"
    }
}
