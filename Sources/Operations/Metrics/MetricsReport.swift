import Audit
import EventLoop
import HTTP
import Metrics
import Server
import System
import TokenService
import TokenStore

/// The server's metrics in Prometheus' text format.
///
/// No label contains data from a client.
struct MetricsReport {
    let server: Server
    private let version: String
    var text = MetricsText()

    var contexts: [LoopContext] { server.contexts }

    /// Writes all metrics.
    ///
    /// Reads files and takes the cache's locks one by one: do not call it on a loop's thread.
    static func text(of server: Server, version: String) -> String {
        var report = MetricsReport(server: server, version: version)
        return report.write()
    }

    private mutating func write() -> String {
        writeServer()
        writeUpkeep()
        writeRequests()
        writeConnections()
        writeStore()
        writeCache()
        writeAudit()
        writeAccess()
        ProcessMetrics.now.write(to: &text)
        return text.text
    }

    // MARK: - Parts

    private mutating func writeServer() {
        text.begin("token_cache_build_info", .gauge, "Always 1; the labels are the versions of program and libraries.")
        text.add(
            [
                "version": version, .init(server.store.software.name.lowercased()): server.store.software.version,
                "openssl": TLSContext.libraryVersion,
            ],
            1
        )
        text.single(
            "token_cache_ready", .gauge, "1 when the server can answer and store, otherwise 0.",
            server.readiness.isReady ? 1 : 0
        )
        if let tls = server.tls {
            text.single(
                "token_cache_certificate_expiry_timestamp_seconds", .gauge,
                "When the first of the certificates expires, in seconds since 1970.", tls.earliestExpiry
            )
        }
    }

    private mutating func writeRequests() {
        text.begin(
            "token_cache_requests_total", .counter, "Answered requests, by method, status and contract error code."
        )
        RequestCounts.write(contexts.requests, to: &text)
        text.begin(
            "token_cache_request_duration_seconds", .histogram,
            "Time in the server: for GET until the end of the loop's turn, for POST until the end of its commit."
        )
        text.addHistogram([("method", "GET")], contexts.reading(\.getTime))
        text.addHistogram([("method", "POST")], contexts.reading(\.postTime))
    }

    private mutating func writeConnections() {
        text.single(
            "token_cache_connections_open", .gauge, "Open connections.",
            contexts.openConnections
        )
        text.single(
            "token_cache_connections_accepted_total", .counter,
            "Accepted connections, including those refused afterwards.",
            contexts.sum { $0.accepted.value }
        )
        text.begin(
            "token_cache_connections_refused_total", .counter,
            "Connections beyond limits.connections: answered with 503, or closed at once.")
        text.add(["cause": "limit"], contexts.sum { $0.refused.value })
        text.add(["cause": "overflow"], contexts.sum { $0.dropped.value })
        text.single(
            "token_cache_buffers_bytes", .gauge,
            "Bytes of limits.buffers in use: by requests, answers and tokens that wait to be written.",
            contexts.first?.bufferBudget.takenBytes ?? 0
        )
        text.single(
            "token_cache_accept_failures_total", .counter,
            "Failed attempts to accept a connection, for example for lack of descriptors.",
            contexts.sum { $0.acceptFailures.value }
        )
        text.single(
            "token_cache_tls_handshakes_total", .counter, "Successful TLS handshakes.",
            contexts.sum { $0.handshakes.value }
        )
        text.begin("token_cache_tls_handshake_failures_total", .counter, "Failed TLS handshakes, by cause.")
        for cause in TLSError.Cause.allCases {
            text.add(["cause": cause.rawValue], contexts.sum { $0.handshakeFailures.value(cause) })
        }
    }

    private mutating func writeStore() {
        let metrics = server.store.metrics
        text.single(
            "token_cache_store_reads_total", .counter,
            "Reads of the database, for GET requests that the cache had no answer for.",
            contexts.sum { $0.storeReads.value }
        )
        text.single(
            "token_cache_store_writes_total", .counter, "Tokens written and synced.", metrics.writes
        )
        text.single(
            "token_cache_store_queue_bytes", .gauge, "Bytes of tokens that wait to be written.",
            metrics.queuedBytes
        )
        if let limit = metrics.queueLimit {
            text.single(
                "token_cache_store_queue_limit_bytes", .gauge, "Bytes of tokens that may wait to be written.",
                limit
            )
        }
        text.begin("token_cache_store_failures_total", .counter, "Failed reads and writes of clients, by cause.")
        for cause in StoreError.Cause.allCases {
            text.add(["cause": cause.rawValue], contexts.sum { $0.storeFailures.value(cause) })
        }
        if let reading = metrics.commitTime {
            text.histogram(
                "token_cache_store_commit_duration_seconds",
                "Time of a group commit, including the sync of the disk, or the way to a database and back.", reading
            )
        }
        if let reading = metrics.syncTime {
            text.histogram(
                "token_cache_store_sync_duration_seconds",
                "Time of a sync of the WAL; each commit waits for one sync.", reading
            )
        }
        if let reading = metrics.groupSize {
            text.histogram("token_cache_store_group_writes", "Writes that share one transaction.", reading)
        }
        if let tokens = metrics.tokens {
            text.single("token_cache_store_tokens", .gauge, "Tokens in the store.", tokens)
        }
        if let sessions = metrics.sessions {
            text.single("token_cache_store_sessions", .gauge, "Sessions of users in the store.", sessions)
        }
        if let bytes = metrics.databaseBytes {
            text.single("token_cache_store_database_bytes", .gauge, "Size of the database's file.", bytes)
        }
        if let bytes = metrics.walBytes {
            text.single("token_cache_store_wal_bytes", .gauge, "Size of the database's WAL.", bytes)
        }
        writeExpiry(metrics)
        writeSealing(metrics)
        if let remote = metrics.remote { write(remote) }
    }

    private mutating func writeExpiry(_ metrics: StoreMetrics) {
        text.single(
            "token_cache_store_expired_tokens_total", .counter, "Expired tokens that were deleted.",
            metrics.expired
        )
        text.single(
            "token_cache_store_expiry_held", .gauge,
            "1 while expired tokens are kept because the clock has jumped, otherwise 0.",
            metrics.isExpiryHeld ? 1 : 0
        )
    }

    private mutating func writeSealing(_ metrics: StoreMetrics) {
        if let number = metrics.sealingKey {
            text.single(
                "token_cache_store_sealing_key", .gauge, "Number of the key that seals tokens now.",
                number)
        }
        text.single(
            "token_cache_store_unreadable_reads_total", .counter,
            "Reads of rows that cannot be decrypted: changed, or sealed with a missing key.",
            metrics.unreadableReads
        )
    }

    private mutating func writeCache() {
        let counts = server.answers.counts
        text.single(
            "token_cache_cache_hits_total", .counter, "Reads answered from the answer cache.",
            counts.hits
        )
        text.single(
            "token_cache_cache_misses_total", .counter, "Reads that the answer cache had no answer for.",
            counts.misses
        )
        text.single("token_cache_cache_entries", .gauge, "Answers in the cache.", counts.entries)
        text.single(
            "token_cache_cache_bytes", .gauge, "Memory of the answer cache, with its tables.",
            counts.bytes
        )
    }

    private mutating func writeAudit() {
        // Zeros without an audit log.
        let audit = server.audit?.figures ?? AuditFigures()
        text.single(
            "token_cache_audit_failing", .gauge, "1 while the audit log cannot be written, otherwise 0.",
            audit.isFailing ? 1 : 0
        )
        text.single("token_cache_audit_lines_total", .counter, "Lines written to the audit log.", audit.lines)
        text.single(
            "token_cache_audit_failures_total", .counter, "Failed attempts to write lines to the audit log.",
            audit.failures
        )
        text.single(
            "token_cache_audit_sequence", .gauge,
            "Sequence number of the audit log's last line, also over restarts: a log that ends earlier was cut off.",
            audit.sequence
        )
        text.single(
            "token_cache_audit_head", .gauge,
            "First 48 bits of the last line's MAC; with the sequence number for token-cache audit verify --head.",
            audit.headNumber
        )
    }
}
