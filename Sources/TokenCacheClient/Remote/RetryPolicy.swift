internal import Foundation

#if canImport(FoundationNetworking)
internal import FoundationNetworking
#endif

/// When a request is sent again.
///
/// Sent again is what a moment's trouble may have caused: no connection, no answer in time, an answer that is not the
/// server's, and 429 or 503, after as long as `Retry-After` asks for. A write without a condition is sent again only if the
/// server has surely not stored it: otherwise it could replace what another device has stored in between. (A
/// `LayeredTokenCache` compares such a write with what is there before it sends it again.)
public struct RetryPolicy: Sendable, Hashable {
    /// How often a request is sent at most; 1 for never again.
    public var attempts: Int
    /// How long one attempt may take.
    public var attemptTimeout: Duration
    /// How long everything may take, with the waits in between.
    public var deadline: Duration
    /// The longest wait before the second attempt.
    ///
    /// It doubles with each further one; the wait is drawn evenly from 0 to there, so that the devices of an outage do not
    /// come back at once.
    public var baseDelay: Duration

    /// A policy; by default three attempts of ten seconds, and half a minute in all.
    public init(
        attempts: Int = 3, attemptTimeout: Duration = .seconds(10), deadline: Duration = .seconds(30),
        baseDelay: Duration = .milliseconds(500)
    ) {
        self.attempts = attempts
        self.attemptTimeout = attemptTimeout
        self.deadline = deadline
        self.baseDelay = baseDelay
    }

    /// How long to wait after a failed attempt; nil if a further one would be of no use.
    ///
    /// - Parameters:
    ///   - error: Why the attempt failed.
    ///   - attempt: Its number, from 1.
    ///   - isRepeatable: Whether a second arrival at the server would change nothing.
    ///   - random: A number from 0 to 1.
    func delay(after error: TokenCacheError, attempt: Int, isRepeatable: Bool, random: Double) -> Duration? {
        guard attempt < attempts else { return nil }
        let jittered = baseDelay * (Double(1 << min(attempt - 1, 10)) * random)
        switch error {
        case .unreachable(let code) where Self.beforeSending.contains(code): return jittered
        case .unreachable, .timedOut, .unexpectedAnswer: return isRepeatable ? jittered : nil
        case .unavailable(_, let retryAfter): return max(retryAfter ?? .zero, .zero) + jittered
        // The server could not write; it says so while its disk is full or fails.
        case .refused(status: 200, code: "50001"): return jittered
        case .refused(status: 500..., _): return isRepeatable ? jittered : nil
        default: return nil
        }
    }

    /// The codes of `URLError` after which nothing was sent: unknown host, no connection to it, no network.
    private static let beforeSending: Set<Int> = [
        URLError.Code.cannotFindHost.rawValue, URLError.Code.cannotConnectToHost.rawValue,
        URLError.Code.dnsLookupFailed.rawValue, URLError.Code.notConnectedToInternet.rawValue,
    ]
}
