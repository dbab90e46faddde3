#if PostgreSQL
import Cryptography
import Synchronization
package import TokenStore

/// Administers a store on PostgreSQL while any number of servers use it.
///
/// Backups are left to PostgreSQL's own tools.
///
/// Any thread.
package struct PostgresAdministrator: StoreAdministrator {
    /// For steps that take milliseconds.
    let connections: PrimaryConnections
    let state: PostgresState
    /// Reads and changes tokens and sessions.
    package let handle: WaitingHandle
    let agreement: StoreAgreement

    /// Changes the key ring that the servers share.
    package var keyRing: (any KeyRingAdministrator)? { agreement }

    // MARK: - Listing

    package func page(after cursor: String?, limit: Int) async throws(StoreError) -> TokenPage {
        let start = try cursor.map { (cursor) throws(StoreError) in try Self.key(of: cursor) } ?? []
        let stored = try await connections.performOnThread(or: StoreError.read) { (connection) throws(PostgresError) in
            try connection.tokens(after: start, limit: limit)
        }
        var coder = RowCoder(state.sealing)
        var page = TokenPage()
        for row in stored.rows {
            page.entries.append((row.times, Result { () throws(SealingError) in try row.token(&coder) }))
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
    package func statistics() async throws(StoreError) -> StoreStatistics {
        let (count, walk, bytes) = try await connections.performOnThread(or: StoreError.read) {
            (connection) throws(PostgresError) in
            (
                try connection.tokenEstimate(),
                // Of a database that was not brought up to date yet, only this statement fails.
                (try? connection.run("SELECT walk FROM store WHERE one = 1").text(0, 0)).flatMap(WalkState.init),
                // Not every database that speaks the protocol has this function; without it, only this statement fails.
                try? connection.integer(
                    """
                    SELECT (pg_total_relation_size('session') + pg_total_relation_size('token')
                        + (SELECT coalesce(sum(pg_total_relation_size(relid)), 0) FROM pg_partition_tree('token')))::bigint
                    """)
            )
        }
        var statistics = StoreStatistics(
            tokens: count.tokens, newestKey: state.sealing.ring.active.number,
            software: connections.facts?.software ?? "PostgreSQL", place: state.hosts.names)
        statistics.tokensAreEstimated = count.isEstimated
        statistics.databaseBytes = bytes.map { Int($0) }
        statistics.schemaVersion = Schema.version
        statistics.unreadableReads = state.counts.withLock(\.store.unreadableReads)
        statistics.walk = walk.map { WalkStatus($0, total: count.tokens) }
        return statistics
    }
}

extension PostgresAdministrator {
    /// Walks over all rows at full speed.
    ///
    /// Rows are sealed with their keys and times, so a row that opens is whole and in its place. The structure of the
    /// tables and indexes is checked by PostgreSQL's own tools.
    package func walk(_ progress: @escaping @Sendable (StoreProgress) -> Void) async throws(StoreError) -> WalkReport {
        try await agreement.walk(progress)
    }

    package func verify(
        _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> StoreVerification {
        StoreVerification(try await walk(progress))
    }
}
#endif
