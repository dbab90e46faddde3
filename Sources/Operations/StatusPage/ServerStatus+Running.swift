internal import Audit
internal import EventLoop
internal import FoundationEssentials
internal import Metrics
internal import Server
internal import Settings
internal import System
internal import TokenService
internal import TokenStore

extension ServerStatus {
    /// Collects the current figures.
    ///
    /// Reads files: do not call it on a loop's thread.
    ///
    /// - Parameters:
    ///   - server: The running server.
    ///   - version: This program's version.
    ///   - listenerWarnings: Warnings about the administration's listeners.
    init(of server: Server, version: String, listenerWarnings: [String]) {
        let (readiness, process) = (server.readiness, ProcessMetrics.now)
        let (store, contexts) = (server.store, server.contexts)
        let (cache, metrics) = (server.answers.counts, store.metrics)
        self.init(
            host: MachineName.current, version: version,
            storeSoftware: "\(store.software.name) \(store.software.version)",
            openssl: TLSContext.libraryVersion,
            time: Date().timeIntervalSince1970, startedAt: process.startTime, ready: readiness.isReady,
            reasons: readiness.reasons, warnings: Self.warnings(server, metrics.missingKeys, listenerWarnings),
            requests: Requests(server),
            latency: ServerStatus.Latencies(
                get: .init(contexts.reading(\.getTime)), post: .init(contexts.reading(\.postTime)),
                commit: metrics.commitTime.map { .init($0) }, sync: metrics.syncTime.map { .init($0) },
                read: metrics.remote.map { .init($0.readTime) }
            ),
            connections: ServerStatus.Connections(
                open: contexts.openConnections, limit: server.connectionLimit,
                accepted: contexts.sum { $0.accepted.value },
                refused: contexts.sum { $0.refused.value + $0.dropped.value }
            ),
            cache: ServerStatus.Cache(
                hits: cache.hits, misses: cache.misses, entries: cache.entries, bytes: cache.bytes
            ),
            access: ServerStatus.Access(server),
            store: ServerStatus.Store(
                tokens: metrics.tokens, sessions: metrics.sessions, databaseBytes: metrics.databaseBytes,
                walBytes: metrics.walBytes, writes: metrics.writes, expired: metrics.expired,
                failures: StoreError.Cause.allCases.reduce(0) { sum, cause in
                    sum + contexts.sum { $0.storeFailures.value(cause) }
                },
                unreadable: metrics.unreadableReads
            ),
            disk: server.diskSpace.space.map {
                .init(bytes: $0.bytes, freeBytes: $0.freeBytes, inodes: $0.inodes, freeInodes: $0.freeInodes)
            },
            reload: .init(
                successful: server.lastReload.isSuccessful, lastSuccess: server.lastReload.successTime),
            backup: metrics.lastBackup.map {
                .init(successful: $0.isSuccessful, lastSuccess: $0.successTime, lastEnd: $0.endTime)
            },
            database: metrics.remote.map { ServerStatus.Database($0) },
            certificate: server.tls.map { ServerStatus.Certificate(expiresAt: $0.earliestExpiry) },
            audit: server.audit.map { ServerStatus.Audit($0.figures) },
            process: ServerStatus.Process(
                processorSeconds: process.processorSeconds, residentBytes: process.residentBytes,
                threads: process.threads, descriptors: process.descriptors, descriptorLimit: process.descriptorLimit
            ),
            loops: Loop.all(of: server), logLines: server.recentLog.count
        )
    }

    /// Warnings for the operator, the most serious first.
    private static func warnings(
        _ server: Server, _ missingKeys: [Int], _ listenerWarnings: [String]
    ) -> [Warning] {
        var warnings = missingKeys.map { "\(StoreEvent.missingKey(number: $0))" }
        warnings += server.exposureWarnings + listenerWarnings
        if !server.settingsInForce.sealing.isEnabled {
            warnings.append("sealing.enabled is off: anybody with access to the disk or a backup can read the tokens")
        }
        let reload = server.lastReload
        var faults = reload.fileFaults.map { "the next start would fail, as a file cannot be used any more: \($0)" }
        if let fault = reload.settingsFault { faults.append("the last reload of the settings was refused; \(fault)") }
        return (faults + server.certificateWarnings + warnings).map { Warning(text: $0) }
    }
}

extension ServerStatus.Database {
    fileprivate init(_ remote: RemoteStoreMetrics) {
        self.init(
            hosts: remote.hosts.map {
                Host(name: $0.name, role: $0.role.rawValue, software: $0.software, connections: $0.connections)
            },
            connections: Connections(
                open: remote.connections.open, pending: remote.connections.pending, wanted: remote.connections.wanted
            ),
            durability: remote.durability.rawValue, encrypted: remote.usesTLS, timeline: remote.timeline,
            waitingRequests: remote.waitingRequests, requestLimit: remote.requestLimit,
            retries: remote.retries.reduce(0) { $0 + $1.count }, failovers: remote.failovers,
            lastFailover: remote.lastFailover, unacknowledged: remote.unacknowledged,
            clockDifference: remote.clockDifference
        )
    }
}

extension ServerStatus.Audit {
    fileprivate init(_ figures: AuditFigures) {
        self.init(
            sequence: figures.sequence, head: figures.headNumber, lines: figures.lines, failures: figures.failures,
            failing: figures.isFailing
        )
    }
}

extension ServerStatus.Access {
    fileprivate init(_ server: Server) {
        let contexts = server.contexts
        var failures: [String: UInt64] = [:]
        for reason in AccessFailure.allCases {
            let count = contexts.sum { $0.accessFailures.value(reason) }
            if count > 0 { failures[reason.rawValue] = count }
        }
        self.init(
            mode: server.settingsInForce.access.mode.rawValue, failures: failures,
            cachedSessions: UInt64(max(0, server.access.sessions.counts.entries))
        )
    }
}
