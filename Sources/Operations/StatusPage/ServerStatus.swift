internal import HTTP
internal import Metrics
internal import Server
internal import System

/// The server's figures, as `/status` returns them; counters begin at 0 when the server starts.
///
/// Contains no data from clients.
struct ServerStatus: Encodable, Sendable {
    /// The name of the machine.
    let host: String
    let version: String
    /// What the store runs on, for example `SQLite 3.40.1`.
    let storeSoftware: String
    let openssl: String
    /// When the figures were read, in seconds since 1970 by this machine's clock.
    let time: Double
    /// When the process started, in seconds since 1970.
    let startedAt: Double
    let ready: Bool
    /// Why the server is not ready; empty if it is.
    let reasons: [String]
    let warnings: [Warning]
    let requests: Requests
    let latency: Latencies
    let connections: Connections
    let cache: Cache
    let access: Access
    let store: Store
    /// The data folder's file system; nil until it has answered.
    let disk: Disk?
    let reload: Reload
    /// Nil if there was no backup.
    let backup: Backup?
    /// Nil for a store on this machine.
    let database: Database?
    /// Nil without `https://` listeners.
    let certificate: Certificate?
    /// Nil without an audit log.
    let audit: Audit?
    let process: Process
    let loops: [Loop]
    /// Lines of the log of level warning and up since the start.
    let logLines: UInt64

    /// A thread that serves clients.
    struct Loop: Encodable, Sendable {
        /// Of the thread.
        let name: String
        /// Open ones.
        let connections: UInt64
        let requests: UInt64
        let processorSeconds: Double
    }

    /// Something that the operator should know or change.
    struct Warning: Encodable, Sendable {
        let text: String
    }

    struct Requests: Encodable, Sendable {
        let get: UInt64
        let post: UInt64
        let other: UInt64
        /// The errors among all requests: HTTP statuses from 400 on, and the contract's error codes except 50002, which
        /// means that no token is stored under the id.
        let errors: UInt64
        /// Answers with 50002: no token is stored under the id.
        let notFound: UInt64
        /// In the order of `listen`.
        let byListener: [Listener]
        /// Errors, the most frequent first; only those that occurred.
        let byCode: [Code]

        struct Code: Encodable, Sendable {
            /// Of HTTP.
            let status: Int
            /// The `errorCode` of the answer; 0 for none.
            let code: Int
            let count: UInt64
        }

        struct Listener: Encodable, Sendable {
            /// The address, with its scheme.
            let name: String
            let requests: UInt64
        }
    }

    struct Latencies: Encodable, Sendable {
        let get: Distribution
        let post: Distribution
        /// Nil for a store that does not measure it.
        let commit: Distribution?
        let sync: Distribution?
        /// From sending reads to a database on other machines to their answers; nil for a store on this machine.
        let read: Distribution?
    }

    /// A histogram of durations.
    struct Distribution: Encodable, Sendable {
        /// The upper bounds of the buckets in seconds, ascending.
        let bounds: [Double]
        /// The number of durations in each bucket, and at the end the number above the last bound.
        let counts: [UInt64]

        init(_ reading: Histogram.Reading) {
            bounds = reading.bounds.map { reading.inUnit($0) }
            counts = reading.counts
        }
    }

    struct Connections: Encodable, Sendable {
        let open: UInt64
        let limit: Int
        let accepted: UInt64
        let refused: UInt64
    }

    struct Cache: Encodable, Sendable {
        let hits: Int
        let misses: Int
        let entries: Int
        let bytes: Int
    }

    /// The mode of access, and the requests that were refused.
    struct Access: Encodable, Sendable {
        /// `access.mode`.
        let mode: String
        /// Requests that were not served although they could be read, by reason; those without a request are left out.
        let failures: [String: UInt64]
        /// Sessions that need no look into the store.
        let cachedSessions: UInt64
    }

    struct Store: Encodable, Sendable {
        /// Nil for a store that does not count them, as are the sizes.
        let tokens: UInt64?
        /// Sessions of users.
        let sessions: UInt64?
        let databaseBytes: Int?
        /// Bytes of the WAL.
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
            /// Open ones.
            let connections: Int
        }

        struct Connections: Encodable, Sendable {
            let open: Int
            /// Attempts that are under way.
            let pending: Int
            let wanted: Int
        }

        let hosts: [Host]
        let connections: Connections
        /// `synchronous` or `local`: what a write must have survived before it is acknowledged.
        let durability: String
        /// Whether connections to the primary use TLS; nil before the first one.
        let encrypted: Bool?
        /// Grows with each promotion; nil before the first connection.
        let timeline: Int64?
        let waitingRequests: Int
        let requestLimit: Int
        let retries: UInt64
        let failovers: UInt64
        /// When another server was last found to be the primary, in seconds since 1970; nil for never.
        let lastFailover: Int64?
        /// Writes that were committed with a warning, and so not acknowledged.
        let unacknowledged: UInt64
        /// By how much the primary's clock is ahead of this machine's, in seconds.
        let clockDifference: Double?
    }

    struct Certificate: Encodable, Sendable {
        /// When the first certificate expires, in seconds since 1970.
        let expiresAt: Int64
    }

    struct Audit: Encodable, Sendable {
        /// The number of the last line.
        let sequence: UInt64
        /// The first 48 bits of the last line's MAC.
        let head: UInt64
        /// Written since the start.
        let lines: UInt64
        let failures: UInt64
        let failing: Bool
    }

    struct Disk: Encodable, Sendable {
        let bytes: Int
        /// What users other than root may still write.
        let freeBytes: Int
        /// Files that can be there; 0 without a limit.
        let inodes: Int
        let freeInodes: Int
    }

    /// The last reload of settings and certificates; the start counts as the first one.
    struct Reload: Encodable, Sendable {
        /// Whether the last one succeeded.
        let successful: Bool
        /// When the last successful one was, in seconds since 1970.
        let lastSuccess: Int64
    }

    struct Backup: Encodable, Sendable {
        /// Whether the last one succeeded.
        let successful: Bool
        /// When the last successful one ended, in seconds since 1970; nil if none was.
        let lastSuccess: Int64?
        /// When the last one ended.
        let lastEnd: Int64
    }

    struct Process: Encodable, Sendable {
        let processorSeconds: Double
        let residentBytes: Double
        let threads: Double
        let descriptors: Int
        let descriptorLimit: UInt64
    }
}

extension ServerStatus.Loop {
    /// The loops of a server; reads files.
    static func all(of server: Server) -> [ServerStatus.Loop] {
        let times = ThreadTimes.now
        return server.contexts.enumerated().map { index, context in
            let name = "loop \(index)"
            var table = RequestCounts.table
            context.metrics.requests.add(to: &table)
            return ServerStatus.Loop(
                name: name, connections: [context].openConnections,
                requests: table.reduce(0, +), processorSeconds: times[name] ?? 0
            )
        }
    }
}

extension ServerStatus.Requests {
    /// Adds up the counts of all loops.
    init(_ server: Server) {
        let table = server.contexts.requestTable
        let columns = RequestCounts.outcomes.count
        func total(_ method: Method) -> UInt64 {
            table[(RequestCounts.row(of: method) * columns)...].prefix(columns).reduce(0, +)
        }
        let counts = RequestCounts.byOutcome(table)
        var (errors, notFound): (UInt64, UInt64) = (0, 0)
        var codes: [Code] = []
        for (index, outcome) in RequestCounts.outcomes.enumerated() where counts[index] > 0 {
            switch outcome.kind {
            case .done: continue
            case .notFound:
                notFound += counts[index]
                continue
            case .refused, .failed: break
            }
            errors += counts[index]
            codes.append(Code(status: outcome.statusNumber, code: outcome.errorCode, count: counts[index]))
        }
        self.init(
            get: total(.get), post: total(.post), other: table.reduce(0, +) - total(.get) - total(.post),
            errors: errors, notFound: notFound,
            byListener: server.listenerRequests.map { Listener(name: $0.name, requests: $0.count) },
            byCode: codes.sorted { $0.count > $1.count }
        )
    }
}
