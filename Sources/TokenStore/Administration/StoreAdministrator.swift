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

    /// Like `page`, but for an export, which the audit log records as such.
    func exportPage(after cursor: StoreCursor?, limit: Int) async throws(StoreError) -> TokenPage

    /// - Parameter exactly: Whether the tokens are counted where that takes a while, as in a large database of another program.
    func statistics(exactly: Bool) async throws(StoreError) -> StoreStatistics
}

extension StoreAdministrator {
    package func exportPage(after cursor: StoreCursor?, limit: Int) async throws(StoreError) -> TokenPage {
        try await page(after: cursor, limit: limit)
    }

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
