/// Backs up an open store.
package protocol StoreBackups: Sendable {
    /// Writes a copy of the store as of one moment, while the store is in use.
    ///
    /// The copy is made beside its place, checked, synced and only then renamed into it, replacing what was there. It is
    /// sealed as the store is; the key ring is no part of it.
    ///
    /// One that fails counts as the last backup, unless it could not even begin: a mistyped path is no failed backup. One that
    /// succeeds counts when `recordBackup` is called, after what else had to be done with it.
    ///
    /// - Parameters:
    ///   - path: An absolute path; this process writes it.
    ///   - progress: Counted in bytes.
    func backUp(
        to path: String, _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> StoreBackup

    /// Notes how the last backup has ended.
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

/// Looks at files that `StoreBackups` has written, and changes nothing.
package protocol BackupVerifier: Sendable {
    /// Checks that a backup could be restored: opens every row with the key ring that there is.
    ///
    /// - Parameters:
    ///   - path: Of the backup.
    ///   - progress: Counted in tokens.
    func verify(_ path: String, _ progress: (StoreProgress) -> Void) throws(StoreError) -> BackupVerification

    /// Whether a file begins as a backup does.
    func isBackup(_ path: String) -> Bool
}

/// What the verification of a backup has found.
package struct BackupVerification: Codable, Sendable {
    package var path: String
    package var bytes: Int
    /// The version of its tables.
    package var schemaVersion: Int
    package var tokens = 0
    package var sessions = 0
    /// When the last of its tokens was stored, in seconds since 1970; nil if it has none.
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

/// A store that no server has open, for the work that needs it so; locked until this is released.
package protocol OfflineStore: AnyObject {
    /// Puts a backup in the place of the store, without the users that were erased after it was made.
    ///
    /// - Parameters:
    ///   - path: What `StoreBackups` has written.
    ///   - keepsSessions: Whether its sessions count again; some may have been ended after it was made.
    ///   - progress: Counted in tokens.
    func restore(
        _ path: String, keepsSessions: Bool, _ progress: (StoreProgress) -> Void
    ) throws(StoreError) -> StoreReplacement
}

/// The backup that was put in the place of a store.
package struct StoreReplacement: Codable, Sendable {
    package var tokens = 0
    package var bytes = 0
    package var isSealed = false
    /// Users that were erased after the backup had been made, and are left out therefore.
    package var erasedUsers = 0
    /// Sessions that were left out.
    package var endedSessions = 0
    /// Tokens of the store that is gone; nil if there was none, or if it could not be read.
    package var replacedTokens: Int?

    package init() {}
}
