import Metrics
import TokenStore

extension MetricsReport {
    /// Writes what only a store in a database on other machines has.
    mutating func write(_ remote: RemoteStoreMetrics) {
        writeConnections(remote)
        writeQueue(remote)
        text.begin(
            "token_cache_database_round_trip_duration_seconds", .histogram,
            """
            From sending statements to their answer, by kind: groups of reads, and proofs that the server is the primary. \
            Writes are in token_cache_store_commit_duration_seconds.
            """
        )
        text.addHistogram([("kind", "read")], remote.readTime)
        text.addHistogram([("kind", "proof")], remote.proofTime)
        text.begin(
            "token_cache_database_retries_total", .counter,
            "Requests that had to be sent again, by SQLSTATE, or connection if that was lost.")
        for (cause, count) in remote.retries { text.add(["cause": cause], count) }
        text.single(
            "token_cache_database_unacknowledged_writes_total", .counter,
            "Writes that were committed with a warning, such as without a standby; clients got 50001.",
            remote.unacknowledged
        )
        writeFailovers(remote)
        writeProofs(remote)
        text.single(
            "token_cache_database_missing_keys", .gauge,
            "Keys with which tokens in the database are or will be sealed, and which this server lacks.",
            remote.missingKeys
        )
    }

    private mutating func writeConnections(_ remote: RemoteStoreMetrics) {
        text.begin(
            "token_cache_database_connections", .gauge,
            "Connections for requests: open, attempts under way, and how many are wanted.")
        text.add(["state": "open"], remote.connections.open)
        text.add(["state": "pending"], remote.connections.pending)
        text.add(["state": "wanted"], remote.connections.wanted)
        text.begin(
            "token_cache_database_host_connections", .gauge,
            """
            Open connections to each host, with its version and its role when it was last asked: primary, standby, former (the \
            primary before), refused (it answers, but cannot be used), unreachable, or unknown (not asked yet).
            """
        )
        for host in remote.hosts {
            text.add(
                ["host": host.name, "role": host.role.rawValue, "version": host.version],
                host.connections
            )
        }
    }

    private mutating func writeQueue(_ remote: RemoteStoreMetrics) {
        text.single(
            "token_cache_database_waiting_requests", .gauge, "Requests that wait for the database.",
            remote.waitingRequests
        )
        text.single(
            "token_cache_database_waiting_requests_limit", .gauge, "How many requests may wait for the database.",
            remote.requestLimit
        )
        text.begin(
            "token_cache_database_refusals_total", .counter,
            "Requests that were refused because too many waited, or too many bytes.")
        text.add(["limit": "requests"], remote.refusedByCount)
        text.add(["limit": "bytes"], remote.refusedByBytes)
        text.single(
            "token_cache_database_dropped_requests_total", .counter,
            "Requests that were never sent to the database, as their clients disconnected while they waited.",
            remote.dropped
        )
    }

    private mutating func writeFailovers(_ remote: RemoteStoreMetrics) {
        text.single(
            "token_cache_database_failovers_total", .counter, "How often another server has become the primary.",
            remote.failovers
        )
        if let timeline = remote.timeline {
            text.single(
                "token_cache_database_timeline", .gauge,
                "Timeline of the primary, which grows with each promotion and never goes back.",
                timeline
            )
        }
        if let difference = remote.clockDifference {
            text.single(
                "token_cache_database_clock_difference_seconds", .gauge,
                "By how much the primary's clock is ahead of this machine's.", difference
            )
        }
    }

    private mutating func writeProofs(_ remote: RemoteStoreMetrics) {
        text.begin(
            "token_cache_database_proofs_total", .counter,
            "Commits that show that a server is still the primary, by outcome.")
        text.add(["outcome": "proven"], remote.proofs)
        text.add(["outcome": "failed"], remote.failedProofs)
        if let age = remote.proofAge {
            text.single(
                "token_cache_database_proof_age_seconds", .gauge,
                "Since the last proof that succeeded; it grows while there are no requests.", age
            )
        }
        text.single(
            "token_cache_database_held_reads_total", .counter, "Reads that were held back until there was a proof.",
            remote.heldReads
        )
    }
}
