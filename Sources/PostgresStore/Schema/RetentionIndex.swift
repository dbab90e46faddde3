#if PostgreSQL
internal import System
internal import TokenStore

/// An index by which expired tokens are found.
///
/// It changes with each write of a token, and so costs each write a fifth or more. So `migrate` makes it only if the
/// retention needs it.
enum RetentionIndex: String {
    case written = "token_by_writing"
    case expired = "token_by_expiration"

    /// Those that a retention needs.
    static func needed(by retention: Retention) -> [RetentionIndex] {
        (retention.sinceWritten == nil ? [] : [.written]) + (retention.sinceExpired == nil ? [] : [.expired])
    }

    /// What makes it; outside of a transaction, as PostgreSQL then does not hold up writes meanwhile.
    var creation: String {
        let columns =
            switch self {
            case .written: "(written_at)"
            case .expired: "(expires_at) WHERE expires_at IS NOT NULL"
            }
        return "CREATE INDEX CONCURRENTLY IF NOT EXISTS \(rawValue) ON token \(columns)"
    }

    /// Whether it is there, and complete: one whose making was interrupted stays invalid, and is not used.
    func isThere(_ session: BlockingSession, until deadline: MonotonicTime) throws(PostgresError) -> Bool {
        var parameters = Parameters()
        parameters.append(rawValue)
        let sql = """
            SELECT 1 FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
            WHERE relname = $1::text AND pg_table_is_visible(pg_class.oid) AND indisvalid
            """
        return try session.run(sql, parameters, until: deadline) { (result) throws(PostgresError) in result.rowCount > 0
        }
    }

    /// What removes one that is invalid.
    var removal: String { "DROP INDEX CONCURRENTLY IF EXISTS \(rawValue)" }
}
#endif
