import Audit
import EventLoop
import FoundationEssentials
import HTTP
import Server
import Settings
import System
import TokenService
import TokenStore

extension AdministrationAnswer {
    /// What the page shows besides charts, without data from clients; `config/openapi.yaml` describes it.
    ///
    /// Reads files: do not call it on a loop's thread.
    ///
    /// - Parameters:
    ///   - server: The running server.
    ///   - version: This program's version.
    ///   - listenerWarnings: Warnings about the administration's listeners.
    static func status(of server: Server, version: String, listenerWarnings: [String]) -> AdministrationAnswer {
        let (figures, readiness, software) = (ServerFigures(of: server), server.readiness, server.store.software)
        let (store, process) = (figures.store, figures.process)
        let errors = figures.requests.filter { [.refused, .failed].contains($0.outcome.kind) && $0.count > 0 }
        let connections: ObjectLiteral = [
            "open": figures.openConnections, "limit": server.connectionLimit, "accepted": figures.accepted,
            "refused": figures.refused.answered + figures.refused.closed,
        ]
        let access: ObjectLiteral = [
            "mode": server.settingsInForce.access.mode.rawValue,
            "failures": Dictionary(uniqueKeysWithValues: figures.denied.filter { $0.count > 0 }),
            "cached_sessions": figures.sessions.entries,
        ]
        let tokens: ObjectLiteral = [
            "tokens": store.tokens, "sessions": store.sessions, "database_bytes": store.databaseBytes,
            "wal_bytes": store.walBytes, "writes": store.writes, "expired": store.expired,
            "failures": figures.storeFailures.reduce(0) { $0 + $1.count }, "unreadable": store.unreadableReads,
            "walk": store.walk.map(object),
        ]
        let usage: ObjectLiteral = [
            "id": ProcessInfo.processInfo.processIdentifier, "processor_seconds": process.processorSeconds,
            "threads": process.threads, "descriptors": process.descriptors,
            "descriptor_limit": process.descriptorLimit,
        ]
        let status: ObjectLiteral = [
            "host": ProcessInfo.processInfo.hostName, "version": version,
            "store_software": "\(software.name) \(software.version)", "openssl": WatchedCertificates.libraryVersion,
            "time": Date().timeIntervalSince1970, "started_at": process.startTime,
            "ready": readiness.isReady, "reasons": readiness.reasons,
            "warnings": warnings(server, store.missingKeys, listenerWarnings).map { ["text": $0] },
            "listeners": server.listenerNames,
            "requests": [
                "by_code": Dictionary(errors.map { ("\($0.outcome.errorCode)", $0.count) }, uniquingKeysWith: +)
            ],
            "connections": connections, "access": access, "store": tokens,
            "disk": figures.disk.map { ["bytes": $0.bytes, "free_bytes": $0.freeBytes] },
            "backup": store.lastBackup.map { backup -> ObjectLiteral in
                ["successful": backup.isSuccessful, "last_success": backup.successTime]
            },
            "database": store.remote.map(object),
            "refresh": store.refresh.map { refresh -> ObjectLiteral in
                [
                    "fault": refresh.fault ?? "", "refreshed": refresh.counts.refreshed,
                    "refused": refresh.counts.refused, "lost": refresh.counts.lost,
                ]
            },
            "certificate": server.tls.map { ["expires_at": $0.earliestExpiry] },
            "audit": (server.audit?.figures).map { audit -> ObjectLiteral in
                ["sequence": audit.sequence, "head": audit.headNumber, "failing": audit.isFailing]
            },
            "process": usage, "loops": loops(server),
        ]
        return AdministrationAnswer(json: status)
    }

    private static func object(_ walk: WalkStatus) -> ObjectLiteral {
        [
            "ended_at": walk.last?.endedAt, "damaged": walk.faultCount,
            "progress": Double(walk.progress.done) / Double(max(1, walk.progress.total)),
        ]
    }

    private static func object(_ remote: RemoteStoreMetrics) -> ObjectLiteral {
        [
            "hosts": remote.hosts.map { ["name": $0.name, "role": $0.role.rawValue, "software": $0.software] },
            "connections": ["open": remote.connections.open, "wanted": remote.connections.wanted],
            "durability": remote.durability.rawValue, "encrypted": remote.usesTLS,
            "waiting_requests": remote.waitingRequests, "request_limit": remote.requestLimit,
            "retries": remote.retryCount, "failovers": remote.failovers, "last_failover": remote.lastFailover,
            "unacknowledged": remote.unacknowledged,
        ]
    }

    /// The threads that serve clients.
    private static func loops(_ server: Server) -> [ObjectLiteral] {
        let times = ThreadTimes.now
        return server.contexts.enumerated().map { index, context in
            let name = "loop \(index)"
            return [
                "name": name, "connections": [context].openConnections,
                "requests": [context].requests.reduce(0) { $0 + $1.count }, "processor_seconds": times[name] ?? 0,
            ]
        }
    }

    /// Warnings for the operator, the most serious first.
    private static func warnings(_ server: Server, _ missingKeys: [Int], _ ofListeners: [String]) -> [String] {
        let reload = server.lastReload
        var faults = reload.fileFaults.map {
            "the next start would fail or lack keys, as a file cannot be used any more: \($0)"
        }
        if let fault = reload.settingsFault { faults.append("the last reload of the settings was refused; \(fault)") }
        return faults + server.certificateWarnings + missingKeys.map { "\(StoreEvent.missingKey(number: $0))" }
            + server.settingsWarnings + ofListeners
    }

    /// The settings in force, and where each of them comes from.
    ///
    /// No setting has a secret as its value: keys and passwords are in files, and a URL with a password is refused.
    static func settings(of server: Server) -> AdministrationAnswer {
        let (inForce, sources) = (server.settingsInForce, server.settingsSources)
        let settings: [ObjectLiteral] = Setting.all.map { setting in
            [
                "key": setting.key, "value": setting.show(inForce), "default": setting.default,
                "source": sources.origin(of: setting) ?? "default",
                // What will take effect at the next start.
                "after_restart": sources.postponedValue(of: setting),
            ]
        }
        return AdministrationAnswer(json: ["settings": settings])
    }
}
