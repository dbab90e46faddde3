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
    /// The names of the first rows that do not open.
    package var unreadableRows: [String] = []
    /// The numbers of the keys that tokens are sealed with and that the key ring lacks.
    package var missingKeys: [Int] = []
    /// Erasures that it knows of, and that are in no file.
    package var missingErasures = 0
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

/// The result of replacing a store by a backup.
package struct StoreReplacement: Codable, Sendable {
    package var tokens = 0
    package var bytes = 0
    package var isSealed = false
    /// Users that were left out because they were erased after the backup was made.
    package var erasedUsers = 0
    /// Sessions that were left out.
    package var endedSessions = 0
    /// How many rows do not open; they stay as they are.
    package var unreadable = 0
    /// Erasures that the store or the backup knows of, and that are in no file: these users may have come back.
    package var missingErasures = 0
    /// Tokens of the store that was replaced; nil if there was none, or if it could not be read.
    package var replacedTokens: Int?

    package init() {}
}
