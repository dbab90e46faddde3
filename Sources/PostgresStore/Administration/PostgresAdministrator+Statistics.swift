#if PostgreSQL
internal import Synchronization
internal import System
package import TokenStore

extension PostgresAdministrator {
    /// Tokens that are counted whenever somebody asks, in some milliseconds; of more, the database's estimate is told.
    private static let countedTokens = 100_000
    /// How long it may take to count all of them, as an operator asks for it.
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
#endif
