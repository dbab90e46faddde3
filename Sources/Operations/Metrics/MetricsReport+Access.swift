internal import JWT
internal import Metrics
internal import Server
internal import System
internal import TokenService

extension MetricsReport {
    /// Writes who was not served, and what is remembered of those who were.
    mutating func writeAccess() {
        let failures = "token_cache_access_failures_total"
        text.begin(failures, .counter, "Requests that were not served although they could be read, by reason.")
        for reason in AccessFailure.allCases {
            text.add(failures, ["reason": reason.rawValue], workers.sum { $0.accessFailures.value(reason) })
        }
        if access.jwtKeys != nil {
            let rejections = "token_cache_jwt_rejections_total"
            text.begin(rejections, .counter, "JWTs that were not accepted, by reason.")
            for reason in JWTRejection.allCases {
                text.add(rejections, ["reason": reason.rawValue], workers.sum { $0.tokenRejections.value(reason) })
            }
            text.single(
                "token_cache_jwt_cache_hits_total", .counter, "JWTs that had been verified before.",
                workers.sum { $0.verifiedTokens.hits.value }
            )
            text.single(
                "token_cache_jwt_cache_misses_total", .counter, "JWTs that had to be verified.",
                workers.sum { $0.verifiedTokens.misses.value }
            )
            text.single(
                "token_cache_jwt_cache_bytes", .gauge, "Memory of the JWTs that were verified.",
                workers.sum { $0.verifiedTokens.bytes.value }
            )
        }
        let sessions = access.sessions.counts
        text.single(
            "token_cache_session_cache_hits_total", .counter, "Sessions that were found in memory.",
            UInt64(max(0, sessions.hits))
        )
        text.single(
            "token_cache_session_cache_misses_total", .counter, "Sessions that had to be read from the store.",
            UInt64(max(0, sessions.misses))
        )
        text.single(
            "token_cache_session_cache_entries", .gauge, "Sessions in memory.", UInt64(max(0, sessions.entries))
        )
        text.single(
            "token_cache_session_cache_bytes", .gauge, "Memory of the sessions, with their tables.",
            UInt64(max(0, sessions.bytes))
        )
    }
}
