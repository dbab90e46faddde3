#if PostgreSQL
internal import Cryptography
internal import Synchronization
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

extension PostgresAdministrator {
    /// Up to this many tokens are counted exactly, in milliseconds; beyond it, the database's estimate is used.
    private static let countedTokens = 100_000
    /// How long an exact count may take when an operator asks for it.
    private static let countingTime = Duration.seconds(3_600)

    package func statistics(exactly: Bool) async throws(StoreError) -> StoreStatistics {
        let figures = try await reading { (session, deadline) throws(PostgresError) in
            try Figures(session, deadline, countingUpTo: Self.countedTokens)
        }
        var (tokens, isEstimated) = (figures.tokens, false)
        if figures.tokens > Self.countedTokens {
            // A new table's estimate may be less than what was counted.
            (tokens, isEstimated) = (max(tokens, figures.estimate ?? 0), true)
            if exactly {
                tokens = try await sessions.performOnThread(
                    .reading, within: Self.countingTime, repeats: true, isLong: true
                ) { (session, deadline) throws(PostgresError) in
                    try TokenRows(session, until: deadline).count(upTo: nil)
                }
                isEstimated = false
            }
        }
        return StoreStatistics(
            tokens: tokens, tokensAreEstimated: isEstimated, databaseBytes: figures.bytes,
            isSealed: state.sealing.ring != nil, newestKey: state.sealing.ring?.newest.number,
            software: sessions.facts?.software ?? "PostgreSQL", schemaVersion: figures.schemaVersion,
            unreadableReads: state.metrics.unreadableReads.load(ordering: .relaxed), place: sessions.place)
    }

    /// What the database tells of itself.
    private struct Figures: Sendable {
        /// One more than the limit if there are more.
        var tokens: Int
        /// Nil where there is none.
        var estimate: Int?
        /// Of the tables with tokens and sessions and of their indexes; nil where that cannot be told.
        var bytes: Int?
        var schemaVersion: Int
        init(
            _ session: BlockingSession, _ deadline: MonotonicTime, countingUpTo limit: Int
        ) throws(PostgresError) {
            func integer(_ sql: String) throws(PostgresError) -> Int? {
                try session.run(sql, until: deadline) { (result) throws(PostgresError) in
                    result.rowCount == 0 ? nil : result.optionalInteger(0, 0).map { Int($0) }
                }
            }
            tokens = try TokenRows(session, until: deadline).count(upTo: limit + 1)
            schemaVersion = try integer("SELECT schema_version FROM store WHERE one = 1") ?? 0
            // Where these are missing, the answer is an error of the statement alone.
            estimate = try? integer("SELECT reltuples::bigint FROM pg_class WHERE oid = 'token'::regclass")
            bytes = try? integer(
                "SELECT (pg_total_relation_size('token') + pg_total_relation_size('session'))::bigint")
        }
    }
}

extension PostgresAdministrator: StoreVerifier {
    /// Rows that are opened in one step.
    private static let verificationPage = 500

    /// Opens every row, a page at a time.
    ///
    /// Rows are sealed with their keys and times, so a row that opens is whole and in its place. The structure of the
    /// tables and indexes is checked by PostgreSQL's own tools.
    package func verify(
        _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> StoreVerification {
        let total = try await statistics().tokens
        progress(StoreProgress(done: 0, total: total))
        var result = StoreVerification()
        var key: [UInt8] = []
        while true {
            let (rows, isLast) = try await rows(after: key, limit: Self.verificationPage)
            open(rows, &result)
            progress(StoreProgress(done: min(result.tokens, total), total: total))
            guard !isLast, let last = rows.last else { break }
            key = last.key
            if Task.isCancelled { throw Self.interrupted }
        }
        try await verifySessions(&result)
        result.isSound = result.unreadable.isEmpty
        return result
    }

    private static var interrupted: StoreError { .refused("verifying was interrupted") }

    /// Opens tokens, and notes what is wrong with them.
    private func open(_ rows: [StoredToken], _ result: inout StoreVerification) {
        var coder = RowCoder(state.sealing)
        for row in rows {
            result.tokens += 1
            do throws(SealingError) {
                _ = try row.token(&coder)
            } catch {
                result.unreadable["\(error)", default: 0] += 1
            }
        }
    }

    private func verifySessions(_ result: inout StoreVerification) async throws(StoreError) {
        var key: [UInt8]? = []
        while let start = key {
            let rows = try await reading { (session, deadline) throws(PostgresError) in
                try SessionRows(session, until: deadline).page(after: start, limit: Self.verificationPage)
            }
            var coder = RowCoder(state.sealing)
            for row in rows {
                do throws(SealingError) {
                    _ = try coder.open(row)
                } catch {
                    result.unreadable["\(error)", default: 0] += 1
                }
            }
            key = rows.count < Self.verificationPage ? nil : rows.last?.key
            if Task.isCancelled { throw Self.interrupted }
        }
    }
}
#endif
