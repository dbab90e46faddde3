package import Metrics

/// A store's counters since it was opened; nil for those that the store does not have.
package struct StoreMetrics: Sendable {
    /// Tokens that were made durable.
    package var writes: UInt64 = 0
    /// Tokens in the store, as of the last write.
    package var tokens: UInt64?
    /// Sessions of users in the store, as of the last write.
    package var sessions: UInt64?
    /// Bytes of tokens that wait to be written, and their limit.
    package var queuedBytes = 0
    package var queueLimit: Int?
    /// Duration of each group's transaction, including the sync or the round trip to a database; failed groups count as
    /// well.
    package var commitTime: Histogram.Reading?
    /// Duration of each sync of the disk; failed ones count as well.
    package var syncTime: Histogram.Reading?
    /// Number of tokens in each group.
    package var groupSize: Histogram.Reading?
    /// Tokens that were deleted because they had expired.
    package var expired: UInt64 = 0
    /// Whether no token is deleted because the clock has jumped.
    package var isExpiryHeld = false
    package var databaseBytes: Int?
    package var walBytes: Int?
    /// The number of the key that seals; nil while a database has not been reached yet.
    package var sealingKey: Int?
    /// Numbers of keys that the ring lacks although rows are sealed with them, as far as the start has shown; a store
    /// on other machines counts them in `remote` instead.
    package var missingKeys: [Int] = []
    /// Rows that did not open when a client asked for them.
    package var unreadableReads = 0
    /// What the walk over all rows has found; nil if that is not known yet.
    package var walk: WalkStatus?
    /// How the last backups ended; nil if there was none.
    package var lastBackup: BackupRecord?
    /// Nil for a store on this machine.
    package var remote: RemoteStoreMetrics?
    /// Nil if tokens are not refreshed.
    package var refresh: RefreshMetrics?

    package init() {}
}

/// How the refreshing of tokens goes.
package struct RefreshMetrics: Sendable {
    /// Exchanges by outcome.
    package struct Counts: Sendable {
        package var refreshed: UInt64 = 0
        /// The provider's answer was dropped because the token was replaced or removed meanwhile.
        package var superseded: UInt64 = 0
        /// The provider says that the token is dead.
        package var refused: UInt64 = 0
        /// Nobody knows whether the token was used up, or the provider's answer could not be stored: the user has to log in again.
        package var lost: UInt64 = 0
        /// Those that may be tried again, by reason.
        package var failed: [String: UInt64] = [:]

        package init() {}
    }

    package var counts: Counts
    /// Failures since the provider last answered as it should, and the reason of the last one.
    package var failures: Int
    package var fault: String?

    package init(counts: Counts, failures: Int, fault: String?) {
        (self.counts, self.failures, self.fault) = (counts, failures, fault)
    }
}

/// Facts and counters of a store in a database on other machines, since it was opened.
package struct RemoteStoreMetrics: Sendable {
    /// A host of the database, in the state in which it was last seen.
    package struct Host: Hashable, Sendable {
        package enum Role: String, CaseIterable, Sendable {
            /// It takes the writes.
            case primary
            /// It follows the primary, or takes no writes for another reason.
            case standby
            /// It was the primary before the present one.
            case former
            /// It answers, but cannot be used; the log says why.
            case refused
            case unreachable
            /// It has not been asked yet.
            case unknown
        }

        /// Its name and port, such as `db1:5432`.
        package var name: String
        package var role = Role.unknown
        /// Such as `15.18`; empty if it is not known.
        package var version = ""
        /// Open connections for clients' requests.
        package var connections = 0

        package init(name: String) {
            self.name = name
        }

        /// Such as `PostgreSQL 15.18`; empty if it is not known.
        package var software: String { version.isEmpty ? "" : "PostgreSQL \(version)" }
    }

    /// Connections for clients' requests.
    package struct Connections: Hashable, Sendable {
        package var open = 0
        /// Attempts that are under way.
        package var pending = 0
        package var wanted = 0

        init() {}
    }

    /// In the order of the settings.
    package var hosts: [Host] = []
    package var connections = Connections()
    /// Requests that wait for the database, and their limit.
    package var waitingRequests = 0
    package var requestLimit = 0
    /// Requests that were refused because too many requests, or too many bytes, were waiting.
    package var refusedByCount: UInt64 = 0
    package var refusedByBytes: UInt64 = 0
    /// Requests that were not sent, or not again, because their clients had disconnected.
    package var dropped: UInt64 = 0
    /// Time from sending a group to its answer, for groups that only read and for proofs.
    package var readTime: Histogram.Reading
    package var proofTime: Histogram.Reading
    /// Requests that had to be sent again, by the SQLSTATE that was the cause, or `connection` if a connection was
    /// lost.
    package var retries: [(cause: String, count: UInt64)] = []
    package var retryCount: UInt64 { retries.reduce(0) { $0 + $1.count } }
    /// How often another server has become the primary, and when that was last noticed, in seconds since 1970.
    package var failovers: UInt64 = 0
    package var lastFailover: Int64?
    /// Grows with each promotion; nil before the first connection.
    package var timeline: Int64?
    /// Commits that have proved that a server is still the primary, and those that have failed to.
    package var proofs: UInt64 = 0
    package var failedProofs: UInt64 = 0
    /// Reads whose answers were held back until there was a proof.
    package var heldReads: UInt64 = 0
    /// Seconds since the last proof began; nil if none is needed.
    package var proofAge: Double?
    /// Writes that the database committed with a warning, and that were therefore not reported to clients as stored.
    package var unacknowledged: UInt64 = 0
    /// By how much the primary's clock is ahead of this machine's, in seconds, when it was last asked.
    package var clockDifference: Double?
    /// Whether connections to the primary use TLS; nil before the first one.
    package var usesTLS: Bool?
    package var durability: StoreDurability
    /// Keys with which tokens in the database are sealed, and which this server lacks.
    package var missingKeys = 0

    package init(durability: StoreDurability, readTime: Histogram.Reading, proofTime: Histogram.Reading) {
        self.durability = durability
        self.readTime = readTime
        self.proofTime = proofTime
    }

    /// The host that takes writes; nil while none is known.
    package var primary: Host? { hosts.first { $0.role == .primary } }
}
