#if PostgreSQL
internal import System
internal import TokenStore

/// The tables, of which there is one form: another one is another version's, and has another number.
enum Schema {
    /// Stands in the table `store`.
    static let version = 4

    /// The advisory lock that all connections of servers share, and that `token-cache copy` holds alone while it fills the store.
    ///
    /// Its second number differs for each store in the database.
    static let useLock = "(1953461099, 'store'::regclass::oid::integer)"

    /// Makes all of it.
    static let statements =
        tables + indexes + options + [
            "INSERT INTO store (one, schema_version, is_sealed) VALUES (1, \(version), true)",
            """
            INSERT INTO sealing_key SELECT number, ''
            FROM unnest(ARRAY[0, \(Statement.tombstoneKeyNumber), \(Statement.erasedKeyNumber)]) AS number
            """,
        ]

    private static let tables = [
        // The keys that rows may be sealed with; 0 stands for values in the clear, and negative numbers for removed tokens. The
        // tables that refer to it have PostgreSQL refuse a row with a key that was retired, and retiring a key that a row needs. It
        // looks at a key when a row gets another one, so a POST that replaces a token costs nothing more.
        "CREATE TABLE sealing_key (number bigint PRIMARY KEY, fingerprint text NOT NULL)",
        // Without a value for a token that was removed: then `written_at` is when.
        """
        CREATE TABLE token (
            key bytea PRIMARY KEY, version bigint NOT NULL, written_at bigint NOT NULL, expires_at bigint,
            key_number bigint NOT NULL REFERENCES sealing_key, value bytea)
        """,
        """
        CREATE TABLE session (
            key bytea PRIMARY KEY, id bytea NOT NULL, user_key bytea NOT NULL, number bigint NOT NULL,
            created_at bigint NOT NULL, expires_at bigint NOT NULL, used_at bigint NOT NULL,
            key_number bigint NOT NULL REFERENCES sealing_key, user_value bytea NOT NULL)
        """,
        // One row. Until the first start of a server, `key_ring` is NULL although `is_sealed` is true. `sealing_key` seals.
        """
        CREATE TABLE store (
            one integer PRIMARY KEY CHECK (one = 1), schema_version integer NOT NULL, key_ring bytea,
            is_sealed boolean NOT NULL, sealing_key bigint REFERENCES sealing_key, looked_at bigint)
        """,
    ]

    private static let indexes = [
        // Otherwise the few tombstones would be looked for among all tokens. By a column that a usual write does not change:
        // PostgreSQL then updates the row without touching any index (a heap-only tuple).
        "CREATE INDEX token_by_removal ON token (key_number) WHERE key_number < 0",
        "CREATE INDEX session_by_id ON session (id)",
        "CREATE INDEX session_by_user ON session (user_key, number)",
        "CREATE INDEX session_by_expiration ON session (expires_at)",
        "CREATE INDEX session_by_use ON session (used_at)",
    ]

    private static let options = [
        // Room in each page for the new versions of its rows; dead rows are removed before they are a fifth of the table,
        // which is PostgreSQL's default and much in a large one.
        """
        ALTER TABLE token SET (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02,
            autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05)
        """,
        """
        ALTER TABLE session SET (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02,
            autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05)
        """,
        // What is sealed cannot be compressed.
        "ALTER TABLE token ALTER COLUMN value SET STORAGE EXTERNAL",
    ]
}

/// An index by which expired tokens are found.
///
/// It changes with each write of a token, and so costs each write a fifth or more. So `migrate` makes it only if the
/// retention needs it.
enum RetentionIndex: String {
    case written = "token_by_writing"
    case expired = "token_by_expiration"

    /// The indexes that a retention needs.
    static func needed(by retention: Retention) -> [RetentionIndex] {
        (retention.sinceWritten == nil ? [] : [.written]) + (retention.sinceExpired == nil ? [] : [.expired])
    }

    /// The statement that makes the index, without blocking writes; it must run outside of a transaction.
    var creation: String {
        let columns =
            switch self {
            case .written: "(written_at)"
            case .expired: "(expires_at) WHERE expires_at IS NOT NULL"
            }
        return "CREATE INDEX CONCURRENTLY IF NOT EXISTS \(rawValue) ON token \(columns)"
    }

    /// Whether it is there, and complete: one whose making was interrupted stays invalid, and is not used.
    func isThere(_ connection: BlockingConnection) throws(PostgresError) -> Bool {
        try connection.integer(
            """
            SELECT 1 FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
            WHERE relname = $1::text AND pg_table_is_visible(pg_class.oid) AND indisvalid
            """, [.text(rawValue)]) != nil
    }

    /// The statement that removes an invalid index.
    var removal: String { "DROP INDEX CONCURRENTLY IF EXISTS \(rawValue)" }
}
#endif
