import Metrics
import TokenStore

extension MetricsText {
    /// What only a store in a database on other machines has.
    mutating func add(_ remote: RemoteStoreMetrics) {
        addConnections(remote)
        single(
            "token_cache_database_waiting_requests", "Requests that wait for the database.", remote.waitingRequests)
        single(
            "token_cache_database_waiting_requests_limit", "How many requests may wait for the database.",
            remote.requestLimit)
        family(
            "token_cache_database_refusals_total",
            "Requests that were refused because too many waited, or too many bytes.",
            by: "limit", [("requests", remote.refusedByCount), ("bytes", remote.refusedByBytes)])
        single(
            "token_cache_database_dropped_requests_total",
            "Requests that were not sent to the database, or not again, as their clients disconnected while they waited.",
            remote.dropped)
        histograms(
            "token_cache_database_round_trip_duration_seconds",
            """
            From sending statements to their answer, by kind: groups of reads, and proofs that the server is the primary. \
            Writes are in token_cache_store_commit_duration_seconds.
            """, by: "kind", [("read", remote.readTime), ("proof", remote.proofTime)])
        family(
            "token_cache_database_retries_total",
            "Requests that had to be sent again, by SQLSTATE, or connection if that was lost.",
            by: "cause", remote.retries.map { ($0.cause, $0.count) })
        single(
            "token_cache_database_unacknowledged_writes_total",
            "Writes that were committed with a warning, such as without a standby; clients got 50001.",
            remote.unacknowledged)
        addPrimary(remote)
        single(
            "token_cache_database_missing_keys",
            "Keys with which tokens in the database are or will be sealed, and which this server lacks.",
            remote.missingKeys)
    }

    private mutating func addConnections(_ remote: RemoteStoreMetrics) {
        let connections = remote.connections
        family(
            "token_cache_database_connections",
            "Connections for requests: open, attempts under way, and how many are wanted.", by: "state",
            [("open", connections.open), ("pending", connections.pending), ("wanted", connections.wanted)])
        begin(
            "token_cache_database_host_connections",
            """
            Open connections to each host, with its version and its role when it was last asked: primary, standby, former (the \
            primary before), refused (it answers, but cannot be used), unreachable, or unknown (not asked yet).
            """)
        for host in remote.hosts {
            add(["host": host.name, "role": host.role.rawValue, "version": host.version], host.connections)
        }
    }

    private mutating func addPrimary(_ remote: RemoteStoreMetrics) {
        single(
            "token_cache_database_failovers_total", "How often another server has become the primary.",
            remote.failovers)
        single(
            "token_cache_database_timeline",
            "Timeline of the primary, which grows with each promotion and never goes back.", remote.timeline)
        single(
            "token_cache_database_clock_difference_seconds",
            "By how much the primary's clock is ahead of this machine's.", remote.clockDifference)
        family(
            "token_cache_database_proofs_total", "Commits that show that a server is still the primary, by outcome.",
            by: "outcome", [("proven", remote.proofs), ("failed", remote.failedProofs)])
        single(
            "token_cache_database_proof_age_seconds",
            "Since the last proof that succeeded; it grows while there are no requests.", remote.proofAge)
        single(
            "token_cache_database_held_reads_total", "Reads that were held back until there was a proof.",
            remote.heldReads)
    }
}
