/// Backs up an open store.
package protocol StoreBackups: Sendable {
    /// Writes a copy of the store as of one moment, while the store is in use.
    ///
    /// The copy is written beside its final path, checked and synced, and only then renamed to it, replacing the file
    /// there. It is sealed if the store is, and does not contain the key ring.
    ///
    /// A backup that fails is recorded as the last one, unless it could not even begin, as with a mistyped path. For a
    /// backup that succeeds, the caller calls `recordBackup` when it has done everything else with it.
    ///
    /// - Parameters:
    ///   - path: An absolute path; this process writes it.
    ///   - progress: Counted in bytes.
    func backUp(
        to path: String, _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> StoreBackup

    /// Records how the last backup ended.
    func recordBackup(isSuccessful: Bool) async
}

/// A backup that was written.
package struct StoreBackup: Codable, Sendable {
    package var path: String
    package var tokens: Int
    package var bytes: Int

    package init(path: String, tokens: Int, bytes: Int) {
        self.path = path
        self.tokens = tokens
        self.bytes = bytes
    }
}

/// Examines files that `StoreBackups` has written, without changing anything.
package protocol BackupVerifier: Sendable {
    /// Checks that a backup could be restored: opens every row with the present key ring.
    ///
    /// - Parameters:
    ///   - path: The backup's path.
    ///   - progress: Counted in tokens.
    func verify(_ path: String, _ progress: (StoreProgress) -> Void) throws(StoreError) -> BackupVerification

    /// Whether a file begins like a backup.
    func isBackup(_ path: String) -> Bool
}

/// The result of verifying a backup.
package struct BackupVerification: Codable, Sendable {
    package var path: String
    package var bytes: Int
    /// The version of its tables.
    package var schemaVersion: Int
    package var tokens = 0
    package var sessions = 0
    /// When the latest of its tokens was written, in seconds since 1970; nil if it has none.
    package var lastWrittenAt: Int64?
    /// Rows that do not open, by what is wrong with them.
    package var unreadable: [String: Int] = [:]
    /// What is wrong with the structure; empty when it is sound.
    package var damages: [String] = []

    /// Whether it has every token, and every row opens.
    package var isSound: Bool { unreadable.isEmpty && damages.isEmpty }

    package init(path: String, bytes: Int, schemaVersion: Int) {
        self.path = path
        self.bytes = bytes
        self.schemaVersion = schemaVersion
    }
}

/// A store that no server has open, for work that requires this; its data folder is locked until this object is
/// released.
package protocol OfflineStore: AnyObject {
    /// Replaces the store by a backup, without the users that were erased after the backup was made.
    ///
    /// - Parameters:
    ///   - path: A file that `StoreBackups` has written.
    ///   - keepsSessions: Whether the backup's sessions become valid again, although some may have been ended since.
    ///   - progress: Counted in tokens.
    func restore(
        _ path: String, keepsSessions: Bool, _ progress: (StoreProgress) -> Void
    ) throws(StoreError) -> StoreReplacement
}

/// The result of replacing a store by a backup.
package struct StoreReplacement: Codable, Sendable {
    package var tokens = 0
    package var bytes = 0
    package var isSealed = false
    /// Users that were left out because they were erased after the backup was made.
    package var erasedUsers = 0
    /// Sessions that were left out.
    package var endedSessions = 0
    /// Tokens of the store that was replaced; nil if there was none, or if it could not be read.
    package var replacedTokens: Int?

    package init() {}
}
