/// Which tokens and sessions are kept for how long.
///
/// Without a time of theirs, tokens are kept for ever, as by token.php.
package struct Retention: Hashable, Sendable {
    /// How long a token is kept after it was last written; nil for ever.
    package var sinceWritten: Duration?
    /// How long a token is kept after the expiration in its token info; nil for ever.
    package var sinceExpired: Duration?

    /// How long a session is kept after it was last used; nil until it expires.
    package var sinceSessionUsed: Duration?

    package init(sinceWritten: Duration? = nil, sinceExpired: Duration? = nil, sinceSessionUsed: Duration? = nil) {
        self.sinceWritten = sinceWritten
        self.sinceExpired = sinceExpired
        self.sinceSessionUsed = sinceSessionUsed
    }

    /// Whether every token is kept for ever.
    package var isUnlimited: Bool { sinceWritten == nil && sinceExpired == nil }

    /// The time between two deletions of what has expired: a tenth of the time that it is kept, at most a minute; nil if nothing
    /// expires.
    ///
    /// - Parameter hasSessions: Whether there are sessions, which all expire.
    package func deletionInterval(hasSessions: Bool) -> Duration? {
        let times = [sinceWritten, sinceExpired, hasSessions ? .seconds(600) : nil]
        return times.compactMap(\.self).min().map { min(max($0 / 10, .milliseconds(100)), .seconds(60)) }
    }

    /// The moment, in seconds since 1970, from which on a row is expired.
    package func deadline(writtenAt: Int64, expiresAt: Int64?) -> Int64 {
        var deadline = Int64.max
        if let sinceWritten { deadline = Self.end(of: sinceWritten, from: writtenAt) }
        if let sinceExpired, let expiresAt { deadline = min(deadline, Self.end(of: sinceExpired, from: expiresAt)) }
        return deadline
    }

    /// The moment after a time, without overflow: the rows of a manipulated file may hold any number.
    private static func end(of time: Duration, from start: Int64) -> Int64 {
        let (end, hasOverflowed) = start.addingReportingOverflow(time.components.seconds + 1)
        return hasOverflowed ? .max : end
    }

    /// Tokens with earlier times than these, in seconds since 1970, are expired.
    package struct Horizon: Hashable {
        /// Of the writing.
        package let written: Int64?
        /// Of the token's own expiration.
        package let expired: Int64?
    }

    /// For tokens; nil when all are kept.
    package func horizon(at now: Int64) -> Horizon? {
        guard !isUnlimited else { return nil }
        return Horizon(
            written: sinceWritten.map { now - $0.components.seconds },
            expired: sinceExpired.map { now - $0.components.seconds }
        )
    }
}
