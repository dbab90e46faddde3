#if PostgreSQL
internal import Cryptography
internal import System
package import TokenStore

/// Administers a store on PostgreSQL, beside any number of servers that use it.
///
/// Backups are the database's business.
///
/// Any thread.
package struct PostgresAdministrator: StoreAdministrator {
    let sessions: PrimarySessions
    let state: PostgresState
    package let users: any UserAdministrator
    /// Changes the key ring that the servers share.
    package let keyRing: (any KeyRingAdministrator)?

    init(
        _ sessions: PrimarySessions, _ state: PostgresState, users: any UserAdministrator,
        keyRing: (any KeyRingAdministrator)?
    ) {
        self.sessions = sessions
        self.users = users
        self.state = state
        self.keyRing = keyRing
    }

    package var backups: (any StoreBackups)? { nil }
    package var verifier: (any StoreVerifier)? { self }

    /// How long a step of a command may take, also while a new primary is being found.
    static let stepTime = Duration.seconds(15)

    /// Runs statements that only read.
    func reading<Value: Sendable>(
        within limit: Duration = Self.stepTime,
        _ body: @escaping @Sendable (BlockingSession, MonotonicTime) throws(PostgresError) -> Value
    ) async throws(StoreError) -> Value {
        try await sessions.performOnThread(.reading, within: limit, repeats: true, body)
    }

    // MARK: - Listing

    package func page(after cursor: StoreCursor?, limit: Int) async throws(StoreError) -> TokenPage {
        let (rows, isLast) = try await rows(after: try Self.key(of: cursor), limit: limit)
        var coder = RowCoder(state.sealing)
        var page = TokenPage()
        for row in rows {
            let token: Result<Token, SealingError>
            do throws(SealingError) {
                token = .success(try row.token(&coder))
            } catch {
                token = .failure(error)
            }
            page.entries.append(
                TokenPage.Entry(writtenAt: row.times.writtenAt, expiresAt: row.times.expiresAt, token: token))
        }
        if !isLast, let last = rows.last { page.next = Self.cursor(after: last.key) }
        return page
    }

    /// Some rows of tokens in the order of their keys, which are hashes in a sealed store.
    func rows(after key: [UInt8], limit: Int) async throws(StoreError) -> (rows: [StoredToken], isLast: Bool) {
        try await reading { (session, deadline) throws(PostgresError) in
            try TokenRows(session, until: deadline).page(after: key, limit: limit)
        }
    }

    /// The key after which a page begins.
    static func key(of cursor: StoreCursor?) throws(StoreError) -> [UInt8] {
        guard let cursor else { return [] }
        guard let key = Base64URL.decode(Array(cursor.text.utf8).span), !key.isEmpty else {
            throw .refused("the cursor is not one of this store's")
        }
        return key
    }

    static func cursor(after key: [UInt8]) -> StoreCursor { StoreCursor(Base64URL.encode(key.span)) }
}
#endif
