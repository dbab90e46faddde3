/// A backup that was written.
package struct StoreBackup: Codable, Sendable {
    package var path: String
    package var tokens: Int
    package var bytes: Int
    /// The copies of the key ring and the erasures; nil if none were asked for.
    package var keys: [String]?

    package init(path: String, tokens: Int, bytes: Int, keys: [String]? = nil) {
        (self.path, self.tokens, self.bytes, self.keys) = (path, tokens, bytes, keys)
    }
}

/// The result of verifying a backup.
package struct BackupVerification: Codable, Sendable {
    var path: String
    package var bytes: Int
    /// The version of its tables.
    var schemaVersion: Int
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
    /// True; tools of version 1.0 may read it.
    var isSealed = true
    /// Users that were left out because they were erased after the backup was made.
    package var erasedUsers = 0
    /// Sessions that were left out.
    package var endedSessions = 0
    /// How many rows do not open; they stay as they are.
    package var unreadable = 0
    /// How many rows were left out because they do not open and are older than an erasure: they may be those of erased users.
    package var omittedUnreadable = 0
    /// Erasures that the store or the backup knows of, and that are in no file: these users may have come back.
    package var missingErasures = 0
    /// Tokens of the store that was replaced; nil if there was none, or if it could not be read.
    package var replacedTokens: Int?
    /// When the latest token of the backup was stored, since when tokens are lost, in seconds since 1970; nil if it has none.
    package var lostAfter: Int64?
    /// When the replaced store was last written, or up to a minute later, in seconds since 1970; nil if that is unknown.
    package var lostBefore: Int64?

    package init() {}
}
