import Audit
import EventLoop
import FoundationEssentials
import HTTP
import Metrics
import Server
import Settings
import System
import TokenService
import TokenStore

/// What the page shows besides charts, as `/status` returns it.
///
/// Counters begin at 0 when the server starts, and times are in seconds since 1970.
///
/// Contains no data from clients.
struct ServerStatus: Encodable, Sendable {
    /// The name of the machine.
    let host: String
    let version: String
    /// What the store runs on, for example `SQLite 3.40.1`.
    let storeSoftware: String
    let openssl: String
    /// When the figures were read.
    let time: Double
    let startedAt: Double
    let ready: Bool
    /// Why the server is not ready; empty if it is.
    let reasons: [String]
    let warnings: [Warning]
    /// The addresses of `listen`, with their schemes.
    let listeners: [String]
    let requests: Requests
    let connections: Connections
    let access: Access
    let store: Store
    /// The data folder's file system; nil until it has answered.
    let disk: Disk?
    /// Nil if there was no backup.
    let backup: Backup?
    /// Nil for a store on this machine.
    let database: Database?
    /// Nil without `https://` listeners.
    let certificate: Certificate?
    /// Nil without an audit log.
    let audit: Audit?
    let process: Process
    /// The threads that serve clients.
    let loops: [Loop]

    /// Something that the operator should know or change.
    struct Warning: Codable, Sendable {
        let text: String
    }

    struct Requests: Encodable, Sendable {
        /// Errors by the `errorCode` of the answer; those that have not occurred are left out.
        let byCode: [String: UInt64]
    }

    struct Connections: Encodable, Sendable {
        let open: UInt64
        let limit: Int
        let accepted: UInt64
        let refused: UInt64
    }

    struct Access: Encodable, Sendable {
        /// `access.mode`.
        let mode: String
        /// Requests that were not served although they could be read, by reason; those without a request are left out.
        let failures: [String: UInt64]
        /// Sessions that need no look into the store.
        let cachedSessions: Int
    }

    struct Store: Encodable, Sendable {
        /// Nil for a store that does not count them, as are the sizes.
        let tokens: UInt64?
        /// Sessions of users.
        let sessions: UInt64?
        let databaseBytes: Int?
        let walBytes: Int?
        let writes: UInt64
        let expired: UInt64
        let failures: UInt64
        /// Rows that could not be decrypted.
        let unreadable: Int
    }

    /// A database on other machines.
    struct Database: Encodable, Sendable {
        struct Host: Encodable, Sendable {
            /// With its port.
            let name: String
            /// `primary`, `standby`, `former`, `refused`, `unreachable` or `unknown`.
            let role: String
            /// For example `PostgreSQL 15.18`; empty if the host has not said it yet.
            let software: String
        }

        struct Connections: Encodable, Sendable {
            let open: Int
            let wanted: Int
        }

        let hosts: [Host]
        let connections: Connections
        /// `synchronous` or `local`: what a write must have survived before it is acknowledged.
        let durability: String
        /// Whether connections to the primary use TLS; nil before the first one.
        let encrypted: Bool?
        let waitingRequests: Int
        let requestLimit: Int
        let retries: UInt64
        let failovers: UInt64
        /// When another server was last found to be the primary; nil for never.
        let lastFailover: Int64?
        /// Writes that were committed with a warning, and so not acknowledged.
        let unacknowledged: UInt64
    }

    struct Certificate: Encodable, Sendable {
        /// When the first certificate expires.
        let expiresAt: Int64
    }

    struct Audit: Encodable, Sendable {
        /// The number of the last line.
        let sequence: UInt64
        /// The first 48 bits of the last line's MAC.
        let head: UInt64
        let failing: Bool
    }

    struct Disk: Encodable, Sendable {
        let bytes: Int
        /// What users other than root may still write.
        let freeBytes: Int
    }

    struct Backup: Encodable, Sendable {
        /// Whether the last one succeeded.
        let successful: Bool
        /// When the last successful one ended; nil if none was.
        let lastSuccess: Int64?
    }

    struct Process: Encodable, Sendable {
        let id: Int32
        let processorSeconds: Double
        let threads: Double
        let descriptors: Int
        let descriptorLimit: UInt64
    }

    struct Loop: Encodable, Sendable {
        /// Of the thread.
        let name: String
        /// Open ones.
        let connections: UInt64
        let requests: UInt64
        let processorSeconds: Double
    }
}

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
        let (contexts, metrics, software) = (server.contexts, server.store.metrics, server.store.software)
        let (readiness, figures, remote) = (server.readiness, ProcessMetrics.now, metrics.remote)
        host = ProcessInfo.processInfo.hostName
        self.version = version
        storeSoftware = "\(software.name) \(software.version)"
        openssl = TLSContext.libraryVersion
        (time, startedAt) = (Date().timeIntervalSince1970, figures.startTime)
        (ready, reasons) = (readiness.isReady, readiness.reasons)
        warnings = Self.warnings(server, metrics.missingKeys, listenerWarnings)
        listeners = server.listenerNames
        requests = Requests(server)
        connections = Connections(
            open: contexts.openConnections, limit: server.connectionLimit,
            accepted: contexts.sum { $0.accepted.value }, refused: contexts.sum { $0.refused.value + $0.dropped.value })
        access = Access(server)
        store = Store(
            tokens: metrics.tokens, sessions: metrics.sessions, databaseBytes: metrics.databaseBytes,
            walBytes: metrics.walBytes, writes: metrics.writes, expired: metrics.expired,
            failures: contexts.sum { $0.storeFailures.total }, unreadable: metrics.unreadableReads)
        disk = server.diskSpace.map { Disk(bytes: $0.bytes, freeBytes: $0.freeBytes) }
        backup = metrics.lastBackup.map { Backup(successful: $0.isSuccessful, lastSuccess: $0.successTime) }
        database = remote.map { Database($0) }
        certificate = server.tls.map { Certificate(expiresAt: $0.earliestExpiry) }
        audit = server.audit.map(\.figures).map {
            Audit(sequence: $0.sequence, head: $0.headNumber, failing: $0.isFailing)
        }
        process = Process(
            id: ProcessInfo.processInfo.processIdentifier, processorSeconds: figures.processorSeconds,
            threads: figures.threads, descriptors: figures.descriptors, descriptorLimit: figures.descriptorLimit)
        let times = ThreadTimes.now
        loops = contexts.enumerated().map { index, context in
            let name = "loop \(index)"
            return Loop(
                name: name, connections: [context].openConnections,
                requests: [context].requests.reduce(0) { $0 + $1.count }, processorSeconds: times[name] ?? 0)
        }
    }

    /// Warnings for the operator, the most serious first.
    private static func warnings(
        _ server: Server, _ missingKeys: [Int], _ listenerWarnings: [String]
    ) -> [Warning] {
        var warnings = missingKeys.map { "\(StoreEvent.missingKey(number: $0))" }
        warnings += server.settingsWarnings + listenerWarnings
        if !server.settingsInForce.sealing.isEnabled {
            warnings.append("sealing.enabled is off: anybody with access to the disk or a backup can read the tokens")
        }
        let reload = server.lastReload
        var faults = reload.fileFaults.map {
            "the next start would fail or lack keys, as a file cannot be used any more: \($0)"
        }
        if let fault = reload.settingsFault { faults.append("the last reload of the settings was refused; \(fault)") }
        return (faults + server.certificateWarnings + warnings).map { Warning(text: $0) }
    }
}

extension ServerStatus.Database {
    fileprivate init(_ remote: RemoteStoreMetrics) {
        self.init(
            hosts: remote.hosts.map { Host(name: $0.name, role: $0.role.rawValue, software: $0.software) },
            connections: Connections(open: remote.connections.open, wanted: remote.connections.wanted),
            durability: remote.durability.rawValue, encrypted: remote.usesTLS,
            waitingRequests: remote.waitingRequests, requestLimit: remote.requestLimit,
            retries: remote.retries.reduce(0) { $0 + $1.count }, failovers: remote.failovers,
            lastFailover: remote.lastFailover, unacknowledged: remote.unacknowledged
        )
    }
}

extension ServerStatus.Access {
    fileprivate init(_ server: Server) {
        var failures: [String: UInt64] = [:]
        for reason in AccessFailure.allCases {
            let count = server.contexts.sum { $0.accessFailures.value(reason) }
            if count > 0 { failures[reason.rawValue] = count }
        }
        self.init(
            mode: server.settingsInForce.access.mode.rawValue, failures: failures,
            cachedSessions: server.access.sessions.counts.entries)
    }
}

extension ServerStatus.Requests {
    fileprivate init(_ server: Server) {
        let failed = server.contexts.requests.filter { [.refused, .failed].contains($0.outcome.kind) && $0.count > 0 }
        self.init(byCode: Dictionary(failed.map { ("\($0.outcome.errorCode)", $0.count) }, uniquingKeysWith: +))
    }
}
