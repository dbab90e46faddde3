internal import Metrics

/// The server in numbers, as `/status` gives it: those that only grow count from the start.
///
/// Nothing in it comes from what a client sends.
struct ServerStatus: Encodable, Sendable {
    let version: String
    /// What the store runs on, for example `SQLite 3.40.1`.
    let storeSoftware: String
    let openssl: String
    /// Seconds since 1970, by this machine's clock.
    let time: Double
    let startedAt: Double
    let ready: Bool
    /// Why it is not ready.
    let reasons: [String]
    let warnings: [Warning]
    let requests: Requests
    let latency: Latencies
    let connections: Connections
    let cache: Cache
    let store: Store
    /// Nil without `https://` listeners.
    let certificate: Certificate?
    let process: Process

    /// What somebody should know or change.
    struct Warning: Encodable, Sendable {
        enum Level: String, Encodable {
            /// Nothing is wrong yet.
            case notice
            case warning
        }

        let level: Level
        let text: String
    }

    struct Requests: Encodable, Sendable {
        let get: UInt64
        let post: UInt64
        let other: UInt64
        /// Of all of them: HTTP statuses from 400 on, and the contract's codes but for 50002, which says that there is
        /// nothing.
        let errors: UInt64
    }

    struct Latencies: Encodable, Sendable {
        let get: Distribution
        let post: Distribution
        /// Nil for a store that does not measure it.
        let commit: Distribution?
        let sync: Distribution?
    }

    /// How often a time was at most so long.
    struct Distribution: Encodable, Sendable {
        /// In seconds, ascending.
        let bounds: [Double]
        /// For each bound what is above the one before; the last for what is above all of them.
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

    struct Store: Encodable, Sendable {
        /// Nil for a store that does not count them, as are the sizes.
        let tokens: UInt64?
        let databaseBytes: Int?
        /// Bytes of the WAL.
        let logBytes: Int?
        let writes: UInt64
        let expired: UInt64
        let failures: UInt64
        /// Rows that did not open.
        let unreadable: Int
    }

    struct Certificate: Encodable, Sendable {
        /// The first of them; seconds since 1970.
        let expiresAt: Int64
    }

    struct Process: Encodable, Sendable {
        let processorSeconds: Double
        let residentBytes: Double
        let threads: Double
        let descriptors: Int
        let descriptorLimit: UInt64
    }
}
