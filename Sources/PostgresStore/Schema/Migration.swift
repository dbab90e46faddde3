#if PostgreSQL
/// What makes one version of the schema from the one before, in two parts between which servers of both versions work.
struct Migration: Sendable {
    /// The version of the schema afterwards, from 1.
    let version: Int
    /// Adds the new form beside the old one; servers of the version before do not notice it.
    let expanding: [Step]
    /// Removes the old form; servers of the version before do not work any more.
    let contracting: [Step]

    /// A statement that may be repeated: it does nothing if what it makes is there.
    struct Step: Sendable {
        let sql: String
    }

    static let all = [first]

    private static let first = Migration(
        version: 1,
        expanding: [
            """
            CREATE TABLE IF NOT EXISTS token (
                key bytea PRIMARY KEY, version bigint NOT NULL, written_at bigint NOT NULL, expires_at bigint,
                key_number bigint NOT NULL, value bytea
            )
            """,
            "CREATE INDEX IF NOT EXISTS token_by_time ON token (written_at)",
            "CREATE INDEX IF NOT EXISTS token_by_expiration ON token (expires_at)",
            """
            CREATE TABLE IF NOT EXISTS session (
                key bytea PRIMARY KEY, id bytea NOT NULL, user_key bytea NOT NULL, number bigint NOT NULL,
                created_at bigint NOT NULL, expires_at bigint NOT NULL, used_at bigint NOT NULL,
                key_number bigint NOT NULL, user_value bytea NOT NULL
            )
            """,
            "CREATE INDEX IF NOT EXISTS session_by_id ON session (id)",
            "CREATE INDEX IF NOT EXISTS session_by_user ON session (user_key, number)",
            "CREATE INDEX IF NOT EXISTS session_by_expiration ON session (expires_at)",
            "CREATE INDEX IF NOT EXISTS session_by_use ON session (used_at)",
            "CREATE TABLE IF NOT EXISTS seal (key_number bigint PRIMARY KEY, seals bigint NOT NULL)",
            """
            CREATE TABLE IF NOT EXISTS server (
                id bytea PRIMARY KEY, name text NOT NULL, version text NOT NULL, schema_version integer NOT NULL,
                key_numbers text NOT NULL, started_at bigint NOT NULL, seen_at bigint NOT NULL
            )
            """,
            """
            CREATE TABLE IF NOT EXISTS store (
                one integer PRIMARY KEY CHECK (one = 1), schema_version integer NOT NULL, oldest_schema integer NOT NULL,
                key_ring bytea, is_sealed boolean NOT NULL, looked_at bigint
            )
            """,
            """
            INSERT INTO store (one, schema_version, oldest_schema, key_ring, is_sealed, looked_at)
            VALUES (1, 1, 1, NULL, true, NULL) ON CONFLICT (one) DO NOTHING
            """,
        ].map(Step.init),
        contracting: [])
}
#endif
