/// A store in numbers; nil for what a store does not know.
package struct StoreStatistics: Codable, Sendable {
    package var tokens: Int
    /// Whether `tokens` is an estimate; nil means no.
    package var tokensAreEstimated: Bool?
    /// Bytes of the database.
    package var databaseBytes: Int?
    /// Bytes of `databaseBytes` that are free.
    package var freeBytes: Int?
    package var walBytes: Int?
    package var isSealed: Bool
    /// The number of the key that seals; nil in the clear.
    package var newestKey: Int?
    /// For example `SQLite 3.40.1`.
    package var software: String
    /// The version of the tables.
    package var schemaVersion: Int?
    /// Rows that did not open when a client asked for them, since the start.
    package var unreadableReads: Int
    /// Where the store is: a folder, or a server.
    package var place: String

    package init(
        tokens: Int, tokensAreEstimated: Bool? = nil, databaseBytes: Int? = nil, freeBytes: Int? = nil,
        walBytes: Int? = nil, isSealed: Bool,
        newestKey: Int? = nil, software: String, schemaVersion: Int? = nil, unreadableReads: Int, place: String
    ) {
        self.tokens = tokens
        self.tokensAreEstimated = tokensAreEstimated
        self.databaseBytes = databaseBytes
        self.freeBytes = freeBytes
        self.walBytes = walBytes
        self.isSealed = isSealed
        self.newestKey = newestKey
        self.software = software
        self.schemaVersion = schemaVersion
        self.unreadableReads = unreadableReads
        self.place = place
    }
}
