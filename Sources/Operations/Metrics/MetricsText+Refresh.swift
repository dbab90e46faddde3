import Metrics
import TokenStore

extension MetricsText {
    /// How the refreshing of tokens goes.
    mutating func add(_ refresh: RefreshMetrics) {
        let counts = refresh.counts
        family(
            "token_cache_refreshes_total",
            """
            Exchanges of tokens at their provider by outcome: refreshed; superseded (the answer was dropped, as a login or a \
            removal came first); refused (the token is dead); lost (nobody knows, so the user has to log in again).
            """,
            by: "outcome",
            [
                ("refreshed", counts.refreshed), ("superseded", counts.superseded), ("refused", counts.refused),
                ("lost", counts.lost),
            ])
        family(
            "token_cache_refresh_failures_total", "Exchanges that failed, by cause.", by: "cause",
            counts.failed.sorted { $0.key < $1.key }.map { ($0.key, $0.value) })
        single(
            "token_cache_refresh_failing",
            "1 since the provider has last failed, until it answers as it should, otherwise 0.",
            refresh.failures > 0 ? 1 : 0)
    }
}
