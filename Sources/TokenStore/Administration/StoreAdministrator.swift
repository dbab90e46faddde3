/// What operators do with an open store, beside what clients do through handles.
///
/// It holds up clients no longer than other clients do. What only some stores can do is nil for the others; see
/// `StoreCapability`.
///
/// Any thread; calls may block it.
package protocol StoreAdministrator: Sendable {
    var backups: (any StoreBackups)? { get }
    var keyRing: (any KeyRingAdministrator)? { get }
    var verifier: (any StoreVerifier)? { get }
    var users: any UserAdministrator { get }

    /// Reads some tokens, in an order that says nothing of them.
    ///
    /// Pages that follow one another have every token once that is there all the while.
    ///
    /// - Parameters:
    ///   - cursor: The `next` of the page before; nil for the first page.
    ///   - limit: How many rows to return at most; fewer are returned when they are large.
    func page(after cursor: StoreCursor?, limit: Int) async throws(StoreError) -> TokenPage

    /// - Parameter exactly: Whether the tokens are counted where that takes a while, as in a large database of another program.
    func statistics(exactly: Bool) async throws(StoreError) -> StoreStatistics
}

extension StoreAdministrator {
    package func statistics() async throws(StoreError) -> StoreStatistics { try await statistics(exactly: false) }

    package func fetch(_ id: [UInt8]) async throws(StoreError) -> [UInt8]? { try await users.fetch(id) }

    package func store(
        _ tokens: [(token: Token, writtenAt: Int64?)], keepsNewer: Bool
    ) async -> [Result<Void, StoreError>] {
        await users.store(tokens, keepsNewer: keepsNewer)
    }

    package func remove(_ ids: [[UInt8]]) async throws(StoreError) -> [Bool] { try await users.remove(ids) }
}

/// Where a listing goes on; only the store that made it knows what it means.
package struct StoreCursor: Hashable, Sendable, Codable {
    package let text: String

    package init(_ text: String) {
        self.text = text
    }

    package init(from decoder: any Decoder) throws {
        text = try decoder.singleValueContainer().decode(String.self)
    }

    package func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(text)
    }
}

/// Some tokens of a listing.
package struct TokenPage: Sendable {
    package var entries: [Entry] = []
    /// Where the next page begins; nil when there is none.
    package var next: StoreCursor?

    package init() {}

    /// A token as it lies in the store.
    package struct Entry: Sendable {
        /// Seconds since 1970.
        package let writtenAt: Int64
        /// When it expires by its own account, in seconds since 1970.
        package let expiresAt: Int64?
        /// Or why it cannot be opened.
        package let token: Result<Token, SealingError>

        package init(writtenAt: Int64, expiresAt: Int64?, token: Result<Token, SealingError>) {
            self.writtenAt = writtenAt
            self.expiresAt = expiresAt
            self.token = token
        }
    }
}

/// How far a long piece of work has come.
package struct StoreProgress: Hashable, Sendable, Codable {
    package var done: Int
    package var total: Int

    package init(done: Int, total: Int) {
        self.done = done
        self.total = total
    }
}

/// What operators do with the tokens and sessions of an open store's users, as clients do through handles.
package protocol UserAdministrator: Sendable {
    /// The token info of an id; nil when nothing is stored under it.
    func fetch(_ id: [UInt8]) async throws(StoreError) -> [UInt8]?

    /// Stores tokens, replacing those of the same id; they are durable when it returns.
    ///
    /// - Parameters:
    ///   - tokens: With the time of their writing in seconds since 1970, nil for now.
    ///   - keepsNewer: As in `WriteCondition`.
    /// - Returns: An outcome for each.
    func store(
        _ tokens: [(token: Token, writtenAt: Int64?)], keepsNewer: Bool
    ) async -> [Result<Void, StoreError>]

    /// Removes tokens.
    ///
    /// - Returns: For each id, whether a token was stored under it.
    func remove(_ ids: [[UInt8]]) async throws(StoreError) -> [Bool]

    func sessionKey(of secret: [UInt8]) async throws(StoreError) -> SessionKey

    func createSession(_ request: NewSession) async throws(StoreError) -> CreatedSession

    /// The sessions of a user, the oldest first.
    func sessions(of user: [UInt8]) async throws(StoreError) -> [UserSession]

    /// Ends a session; nil if there is none.
    func endSession(id: SessionID) async throws(StoreError) -> EndedSession?

    /// Ends all sessions of a user; returns how many there were.
    func endSessions(of user: [UInt8]) async throws(StoreError) -> Int

    func erase(_ user: [UInt8]) async throws(StoreError) -> Erasure
}

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
    package var unreadableReads = 0
    /// Where the store is: a folder, or a server.
    package var place: String

    package init(tokens: Int, isSealed: Bool, software: String, place: String) {
        (self.tokens, self.isSealed, self.software, self.place) = (tokens, isSealed, software, place)
    }
}

/// Checks the whole of an open store.
package protocol StoreVerifier: Sendable {
    /// Checks the store's structure, and opens every row.
    ///
    /// - Parameter progress: Counted in tokens.
    func verify(_ progress: @escaping @Sendable (StoreProgress) -> Void) async throws(StoreError) -> StoreVerification
}

/// What a verification has found.
package struct StoreVerification: Codable, Sendable {
    package var tokens = 0
    /// Rows that do not open, by what is wrong with them.
    package var unreadable: [String: Int] = [:]
    /// What is wrong with the structure, whose rows are then not opened, or else with the rows; empty when it is sound.
    package var damages: [String] = []
    /// The copy of a damaged WAL beside the store, in which there may be tokens that it lacks; nil if there is none.
    package var damagedCopy: String?

    /// Whether the store has every token, and every token opens.
    package var isSound = true

    package init() {}
}

/// Makes the tables of a store that several servers share; the servers themselves never do that.
package protocol SchemaMigrator: Sendable {
    /// Makes the tables if there are none, and what else the servers need; may be repeated.
    func migrate() throws(StoreOpenError) -> SchemaMigration
}

/// What a migration has done.
package struct SchemaMigration: Codable, Sendable {
    /// The version of the tables.
    package var version: Int
    /// Whether there were none.
    package var isNew: Bool

    package init(version: Int, isNew: Bool) {
        self.version = version
        self.isNew = isNew
    }
}
