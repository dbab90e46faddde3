/// Which tokens are kept for how long.
///
/// With neither time set, as in token.php, everything is kept for ever.
package struct Retention: Hashable, Sendable {
    /// How long a token is kept after it was last written; nil for ever.
    package var sinceWritten: Duration?
    /// How long a token is kept after the expiration that it states itself; nil for ever.
    package var sinceExpired: Duration?

    package init(sinceWritten: Duration? = nil, sinceExpired: Duration? = nil) {
        self.sinceWritten = sinceWritten
        self.sinceExpired = sinceExpired
    }

    /// The moments, in seconds since 1970, before which a token is dropped.
    struct Horizon: Hashable {
        /// Of the writing.
        let written: Int64?
        /// Of the token's own expiration.
        let expired: Int64?

        /// Whether a row is dropped.
        func hasPassed(writtenAt: Int64, expiresAt: Int64?) -> Bool {
            if let written, writtenAt < written { return true }
            if let expired, let expiresAt, expiresAt < expired { return true }
            return false
        }
    }

    /// Nil when everything is kept.
    func horizon(at now: Int64) -> Horizon? {
        guard sinceWritten != nil || sinceExpired != nil else { return nil }
        return Horizon(
            written: sinceWritten.map { now - $0.components.seconds },
            expired: sinceExpired.map { now - $0.components.seconds }
        )
    }
}
