internal import EventLoop
internal import Foundation
internal import Metrics
internal import Settings
internal import TokenService
internal import TokenStore

extension Server {
    /// The server in numbers, for its page and for scripts; reads files, so not on a loop's thread.
    func status(version: String) -> ServerStatus {
        let (settings, readiness, process) = (settingsInForce, readiness, ProcessMetrics.now)
        let (cache, sizes, metrics) = (store.cacheCounts, store.fileSizes, store.metrics)
        return ServerStatus(
            version: version, sqlite: SQLiteLibrary.version, openssl: TLSContext.libraryVersion,
            time: Date().timeIntervalSince1970, startedAt: process.startTime, ready: readiness.isReady,
            reasons: readiness.reasons, warnings: warnings, requests: workers.requests,
            latency: ServerStatus.Latencies(
                get: .init(workers.reading(\.getTime)), post: .init(workers.reading(\.postTime)),
                commit: .init(metrics.commitTime.reading), sync: .init(metrics.syncTime.reading)
            ),
            connections: ServerStatus.Connections(
                open: workers.openConnections, limit: settings.connectionLimit,
                accepted: workers.sum { $0.accepted.value },
                refused: workers.sum { $0.refused.value + $0.dropped.value }
            ),
            cache: ServerStatus.Cache(
                hits: cache.hits, misses: cache.misses, entries: cache.entries, bytes: cache.bytes
            ),
            store: ServerStatus.Store(
                tokens: metrics.tokens.value, databaseBytes: sizes.database, logBytes: sizes.log,
                writes: metrics.writes.value, expired: metrics.expired.value,
                failures: StoreError.Cause.allCases.reduce(0) { sum, cause in
                    sum + workers.sum { $0.storeFailures.value(cause) }
                },
                unreadable: store.unreadableCount
            ),
            certificate: tls.map { ServerStatus.Certificate(expiresAt: $0.earliestExpiry) },
            process: ServerStatus.Process(
                processorSeconds: process.processorSeconds, residentBytes: process.residentBytes,
                threads: process.threads, descriptors: process.descriptors, descriptorLimit: process.descriptorLimit
            )
        )
    }

    /// What lets others read tokens on their way, or watch the server.
    var exposureWarnings: [String] {
        var warnings: [String] = []
        for entrance in entrances where !entrance.listener.isLocal && entrance.tls == nil {
            warnings.append(
                """
                \(entrance.name) takes plain HTTP from other machines; \
                let only a proxy that speaks HTTPS reach it, over a network that you trust
                """
            )
        }
        for listener in administration where !listener.isLocal {
            warnings.append(
                """
                admin.listen: whoever reaches \(listener.name) sees how much is stored and how the server does; \
                let only those reach it who run it
                """
            )
        }
        if settingsInForce.https.mode == .off {
            warnings.append("https.mode is off: tokens are accepted and given over plain HTTP")
        }
        return warnings
    }

    /// What somebody should know or change, the worst first.
    private var warnings: [ServerStatus.Warning] {
        var warnings = exposureWarnings
        if !settingsInForce.sealing.isEnabled {
            warnings.append("sealing.enabled is off: whoever gets hold of the disk or a backup can read the tokens")
        }
        var all = (certificateWarnings + warnings).map { ServerStatus.Warning(level: .warning, text: $0) }
        if SQLiteLibrary.hasWALResetBug {
            let text = """
                SQLite \(SQLiteLibrary.version) has the WAL-reset bug; it cannot strike as long as no other program \
                opens the database, and 3.51.3 does not have it
                """
            all.append(ServerStatus.Warning(level: .notice, text: text))
        }
        return all
    }
}
