import Audit
import EventLoop
import HTTP
import Metrics
import Server
import System
import TokenService
import TokenStore

extension MetricsText {
    /// The server's metrics in Prometheus' text format.
    ///
    /// No label contains data from a client. Reads files and takes the caches' locks one by one: do not call it on a loop's thread.
    static func report(of server: Server, version: String) -> String {
        let figures = ServerFigures(of: server)
        var text = MetricsText()
        text.addState(server, version: version)
        text.addUpkeep(server, figures)
        text.addRequests(figures)
        text.addConnections(server.contexts, figures)
        text.addStore(server.contexts, figures)
        text.addCache(figures)
        text.addAudit(server)
        text.addAccess(server, figures)
        text.add(figures.process)
        return text.text
    }

    private mutating func addState(_ server: Server, version: String) {
        begin("token_cache_build_info", "Always 1; the labels are the versions of program and libraries.")
        let software = server.store.software
        add(
            [
                "version": version, software.name.lowercased(): software.version,
                "openssl": WatchedCertificates.libraryVersion,
            ], 1)
        single("token_cache_ready", "1 when the server can answer and store, otherwise 0.", server.readiness.isReady)
        single(
            "token_cache_certificate_expiry_timestamp_seconds",
            "When the first of the certificates expires, in seconds since 1970.", server.tls?.earliestExpiry)
    }

    /// What operators have to look after: the disk, reloads and backups.
    private mutating func addUpkeep(_ server: Server, _ figures: ServerFigures) {
        let disk = figures.disk
        single("token_cache_data_directory_size_bytes", "Size of the data folder's file system.", disk?.bytes)
        single(
            "token_cache_data_directory_free_bytes",
            "Bytes that the server may still write to the data folder's file system.", disk?.freeBytes)
        // A file system without a limit of files says 0.
        if let disk, disk.inodes > 0 {
            single(
                "token_cache_data_directory_inodes", "Files that the data folder's file system can hold.", disk.inodes)
            single(
                "token_cache_data_directory_free_inodes",
                "Files that can still be created on the data folder's file system.", disk.freeInodes)
        }
        let reload = server.lastReload
        single(
            "token_cache_last_reload_successful",
            "1 if the last reload of settings, certificates and keys succeeded, otherwise 0; the start counts as one.",
            reload.isSuccessful)
        single(
            "token_cache_last_reload_success_timestamp_seconds",
            "When settings and certificates were last reloaded successfully, in seconds since 1970.", reload.successTime
        )
        let backup = figures.store.lastBackup
        single(
            "token_cache_last_backup_successful",
            """
            1 if the last backup of token-cache backup succeeded, otherwise 0; with --into and --after it counts once verified \
            and copied.
            """, backup?.isSuccessful)
        single(
            "token_cache_last_backup_success_timestamp_seconds",
            """
            When the last successful backup of token-cache backup ended, in seconds since 1970, also before the last \
            start; with --into and --after it counts once verified and copied.
            """, backup?.successTime)
    }

    private mutating func addRequests(_ figures: ServerFigures) {
        begin("token_cache_requests_total", "Answered requests, by method, status and contract error code.")
        RequestCounts.write(figures.requests, to: &self)
        histograms(
            "token_cache_request_duration_seconds",
            "Time in the server: for GET until the end of the loop's turn, for POST until the end of its commit.",
            by: "method", [("GET", figures.getTime), ("POST", figures.postTime)])
    }

    private mutating func addConnections(_ contexts: [LoopContext], _ figures: ServerFigures) {
        single("token_cache_connections_open", "Open connections.", figures.openConnections)
        single(
            "token_cache_connections_accepted_total", "Accepted connections, including those refused afterwards.",
            figures.accepted)
        family(
            "token_cache_connections_refused_total",
            "Connections beyond limits.connections: answered with 503, or closed at once.",
            by: "cause", [("limit", figures.refused.answered), ("overflow", figures.refused.closed)])
        single(
            "token_cache_buffers_bytes",
            "Bytes of limits.buffers in use: by requests, answers and tokens that wait to be written.",
            figures.bufferBytes)
        single(
            "token_cache_accept_failures_total",
            "Failed attempts to accept a connection, for example for lack of descriptors.",
            contexts.sum { $0.acceptFailures.value })
        single(
            "token_cache_tls_handshakes_total", "Successful TLS handshakes.", contexts.sum { $0.handshakes.value })
        family(
            "token_cache_tls_handshake_failures_total", "Failed TLS handshakes, by cause.",
            by: "cause", contexts.counts(\.handshakeFailures))
    }

    private mutating func addStore(_ contexts: [LoopContext], _ figures: ServerFigures) {
        let store = figures.store
        single(
            "token_cache_store_reads_total",
            "Reads of the database, for GET requests that the cache had no answer for.",
            contexts.sum { $0.storeReads.value })
        single("token_cache_store_writes_total", "Tokens written and synced.", store.writes)
        single("token_cache_store_queue_bytes", "Bytes of tokens that wait to be written.", store.queuedBytes)
        single(
            "token_cache_store_queue_limit_bytes", "Bytes of tokens that may wait to be written.", store.queueLimit)
        family(
            "token_cache_store_failures_total", "Failed reads and writes of clients, by cause.",
            by: "cause", figures.storeFailures)
        histogram(
            "token_cache_store_commit_duration_seconds",
            "Time of a group commit, including the sync of the disk, or the way to a database and back.",
            store.commitTime)
        histogram(
            "token_cache_store_sync_duration_seconds", "Time of a sync of the WAL; each commit waits for one sync.",
            store.syncTime)
        histogram("token_cache_store_group_writes", "Writes that share one transaction.", store.groupSize)
        single("token_cache_store_tokens", "Tokens in the store.", store.tokens)
        single("token_cache_store_sessions", "Sessions of users in the store.", store.sessions)
        single("token_cache_store_database_bytes", "Size of the database's file.", store.databaseBytes)
        single("token_cache_store_wal_bytes", "Size of the database's WAL.", store.walBytes)
        single("token_cache_store_expired_tokens_total", "Expired tokens that were deleted.", store.expired)
        single(
            "token_cache_store_expiry_held",
            "1 while expired tokens are kept because the clock has jumped, otherwise 0.", store.isExpiryHeld)
        single("token_cache_store_sealing_key", "Number of the key that seals tokens now.", store.sealingKey)
        single(
            "token_cache_store_unreadable_reads_total",
            "Reads of rows that cannot be decrypted: changed, or sealed with a missing key.", store.unreadableReads)
        single(
            "token_cache_store_damaged_rows",
            "Rows that cannot be decrypted, and other damage, as the walk over all rows has last found it.",
            store.walk?.faultCount)
        single(
            "token_cache_last_walk_timestamp_seconds",
            "When the walk over all rows last ended a round, in seconds since 1970, also before the last start.",
            store.walk?.last?.endedAt)
        if let remote = store.remote { add(remote) }
        if let refresh = store.refresh { add(refresh) }
    }

    private mutating func addCache(_ figures: ServerFigures) {
        let answers = figures.answers
        single("token_cache_cache_hits_total", "Reads answered from the answer cache.", answers.hits)
        single("token_cache_cache_misses_total", "Reads that the answer cache had no answer for.", answers.misses)
        single("token_cache_cache_entries", "Answers in the cache.", answers.entries)
        single("token_cache_cache_bytes", "Memory of the answer cache, with its tables.", answers.bytes)
    }

    private mutating func addAudit(_ server: Server) {
        // Zeros without an audit log.
        let audit = server.audit?.figures ?? AuditFigures()
        single(
            "token_cache_audit_failing", "1 while the audit log cannot be written, otherwise 0.", audit.isFailing)
        single("token_cache_audit_lines_total", "Lines written to the audit log.", audit.lines)
        single(
            "token_cache_audit_failures_total", "Failed attempts to write lines to the audit log.", audit.failures)
        single(
            "token_cache_audit_sequence",
            "Sequence number of the audit log's last line, also over restarts: a log that ends earlier was cut off.",
            audit.sequence)
        single(
            "token_cache_audit_head",
            "First 48 bits of the last line's MAC; with the sequence number for token-cache audit verify --head.",
            audit.headNumber)
    }

    /// Who was not served, and what is remembered of those who were.
    private mutating func addAccess(_ server: Server, _ figures: ServerFigures) {
        family(
            "token_cache_access_failures_total",
            "Requests that were not served although they could be read, by reason.", by: "reason", figures.denied)
        if let tokens = server.access.jwtKeys?.content.counts {
            family(
                "token_cache_jwt_rejections_total", "JWTs that were not accepted, by reason.",
                by: "reason", server.contexts.counts(\.tokenRejections))
            single("token_cache_jwt_cache_hits_total", "JWTs that had been verified before.", tokens.hits)
            single("token_cache_jwt_cache_misses_total", "JWTs that had to be verified.", tokens.misses)
            single("token_cache_jwt_cache_bytes", "Memory of the JWTs that were verified.", tokens.bytes)
        }
        let sessions = figures.sessions
        single("token_cache_session_cache_hits_total", "Sessions that were found in memory.", sessions.hits)
        single(
            "token_cache_session_cache_misses_total", "Sessions that had to be read from the store.", sessions.misses)
        single("token_cache_session_cache_entries", "Sessions in memory.", sessions.entries)
        single("token_cache_session_cache_bytes", "Memory of the sessions, with their tables.", sessions.bytes)
    }
}
