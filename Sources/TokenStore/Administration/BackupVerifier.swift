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
