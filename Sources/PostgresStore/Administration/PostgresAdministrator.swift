#if PostgreSQL
import Cryptography
import Synchronization
import System
package import TokenStore

/// Administers a store on PostgreSQL while any number of servers use it.
///
/// Backups are left to PostgreSQL's own tools.
///
/// Any thread.
package struct PostgresAdministrator: StoreAdministrator {
    let connections: PrimaryConnections
    let longWork: PrimaryConnections
    let state: PostgresState
    package let handle: WaitingHandle
    /// Changes the key ring that the servers share; nil if the store is not sealed.
    package let keyRing: (any KeyRingAdministrator)?

    /// - Parameters:
    ///   - connections: Used for steps that take milliseconds.
    ///   - longWork: Used for work that takes hours.
    ///   - state: Holds the keys.
    ///   - handle: Reads and changes tokens and sessions.
    ///   - agreement: Holds the key ring; nil if the store is not sealed.
    init(
        _ connections: PrimaryConnections, _ longWork: PrimaryConnections, _ state: PostgresState,
        handle: WaitingHandle, _ agreement: StoreAgreement?
    ) {
        (self.connections, self.longWork, self.state, self.handle) = (connections, longWork, state, handle)
        keyRing = agreement
    }

    /// How long a step of a command may take, including the search for a new primary.
    static let stepTime = Duration.seconds(15)

    /// Runs statements that read.
    private func reading<Value: Sendable>(
        _ body: @escaping @Sendable (BlockingConnection) throws(PostgresError) -> Value
    ) async throws(StoreError) -> Value {
        try await connections.performOnThread(or: StoreError.read, within: Self.stepTime, body)
    }

    // MARK: - Listing

    package func page(after cursor: String?, limit: Int) async throws(StoreError) -> TokenPage {
        let start = try cursor.map { (cursor) throws(StoreError) in try Self.key(of: cursor) } ?? []
        let stored = try await reading { (connection) throws(PostgresError) in
            try connection.tokens(after: start, limit: limit)
        }
        var coder = RowCoder(state.sealing)
        var page = TokenPage()
        for row in stored.rows {
            do throws(SealingError) {
                page.entries.append((row.times, .success(try row.token(&coder))))
            } catch {
                page.entries.append((row.times, .failure(error)))
            }
        }
        page.next = stored.next.map { Base64URL.encode($0.span) }
        return page
    }

    private static func key(of cursor: String) throws(StoreError) -> [UInt8] {
        guard let key = Base64URL.decode(Array(cursor.utf8).span), !key.isEmpty else {
            throw .refused("the cursor is not one of this store's")
        }
        return key
    }
}

extension PostgresAdministrator {
    /// How long it may take to count all tokens.
    private static let countingTime = Duration.seconds(3_600)

    package func statistics(exactly: Bool) async throws(StoreError) -> StoreStatistics {
        var (count, bytes) = try await reading { (connection) throws(PostgresError) in
            (
                try connection.tokenEstimate(),
                // Not every database that speaks the protocol has this function; without it, only this statement fails.
                try? connection.integer(
                    "SELECT (pg_total_relation_size('token') + pg_total_relation_size('session'))::bigint")
            )
        }
        if count.isEstimated, exactly {
            count = try await longWork.performOnThread(or: StoreError.read, within: Self.countingTime) {
                (connection) throws(PostgresError) in (try connection.tokenCount(), false)
            }
        }
        var statistics = StoreStatistics(
            tokens: count.tokens, isSealed: state.sealing.ring != nil,
            software: connections.facts?.software ?? "PostgreSQL", place: state.hosts.names)
        statistics.tokensAreEstimated = count.isEstimated
        statistics.databaseBytes = bytes.map { Int($0) }
        statistics.newestKey = state.sealing.ring?.newest.number
        statistics.schemaVersion = Schema.version
        statistics.unreadableReads = state.counts.withLock(\.store.unreadableReads)
        return statistics
    }
}

extension PostgresAdministrator {
    /// Rows that are opened in one step.
    private static let verificationPage = 500
    /// How many rows that do not open are named.
    private static let namedRows = 10

    /// Opens every row, a page at a time.
    ///
    /// Rows are sealed with their keys and times, so a row that opens is whole and in its place. The structure of the
    /// tables and indexes is checked by PostgreSQL's own tools.
    package func verify(
        _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> StoreVerification {
        let total = try await statistics().tokens
        progress(StoreProgress(done: 0, total: total))
        var (result, names) = (StoreVerification(), [String]())
        var next: RowPosition? = RowPosition()
        while let start = next {
            let page = try await reading { (connection) throws(PostgresError) in
                try connection.page(from: start, limit: Self.verificationPage)
            }
            var coder = RowCoder(state.sealing)
            _ = page.rows.opened(&coder) { error, row in
                result.unreadable["\(error)", default: 0] += 1
                if names.count < Self.namedRows { names.append(row.name) }
            }
            if !start.areSessions { result.tokens += page.rows.count }
            progress(StoreProgress(done: min(result.tokens, total), total: total))
            next = page.next
            if Task.isCancelled { throw .refused("verifying was interrupted") }
        }
        (result.unreadableRows, result.isSound) = (names, result.unreadable.isEmpty)
        return result
    }
}
#endif
