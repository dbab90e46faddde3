package import Metrics

/// What a store has counted since it was opened; nil for what a store does not count.
package struct StoreMetrics: Sendable {
    /// Tokens that were made durable.
    package var writes: UInt64
    /// Tokens in the store, as of the last write.
    package var tokens: UInt64?
    /// Sessions of users in the store, as of the last write.
    package var sessions: UInt64?
    /// Bytes of tokens that wait to be written, and how many may.
    package var queuedBytes: Int
    package var queueLimit: Int?
    /// Time of each group's transaction, including the sync, or the way to a database and back; failed groups count as well.
    package var commitTime: Histogram.Reading?
    /// Time of each sync of the disk; failed ones as well.
    package var syncTime: Histogram.Reading?
    /// Tokens of a group.
    package var groupSize: Histogram.Reading?
    /// Tokens that were deleted because they had expired.
    package var expired: UInt64
    /// Whether no token is deleted because the clock has jumped.
    package var isExpiryHeld: Bool
    package var databaseBytes: Int?
    package var walBytes: Int?
    /// The number of the key that seals; nil in the clear.
    package var sealingKey: Int?
    /// Numbers of keys that the ring lacks although rows are sealed with them, as far as the start has seen; a store on
    /// other machines counts them in `remote` instead.
    package var missingKeys: [Int]
    /// Rows that did not open when a client asked for them.
    package var unreadableReads: Int
    /// How the last backups ended; nil if there was none.
    package var lastBackup: BackupRecord?
    /// Nil for a store on this machine.
    package var remote: RemoteStoreMetrics?

    package init(
        writes: UInt64, tokens: UInt64? = nil, sessions: UInt64? = nil, queuedBytes: Int = 0,
        queueLimit: Int? = nil, commitTime: Histogram.Reading? = nil,
        syncTime: Histogram.Reading? = nil, groupSize: Histogram.Reading? = nil, expired: UInt64 = 0,
        isExpiryHeld: Bool = false, databaseBytes: Int? = nil, walBytes: Int? = nil,
        sealingKey: Int? = nil, missingKeys: [Int] = [], unreadableReads: Int = 0,
        lastBackup: BackupRecord? = nil, remote: RemoteStoreMetrics? = nil
    ) {
        self.writes = writes
        self.tokens = tokens
        self.sessions = sessions
        self.queuedBytes = queuedBytes
        self.queueLimit = queueLimit
        self.commitTime = commitTime
        self.syncTime = syncTime
        self.groupSize = groupSize
        self.expired = expired
        self.isExpiryHeld = isExpiryHeld
        self.databaseBytes = databaseBytes
        self.walBytes = walBytes
        self.sealingKey = sealingKey
        self.missingKeys = missingKeys
        self.unreadableReads = unreadableReads
        self.lastBackup = lastBackup
        self.remote = remote
    }
}
