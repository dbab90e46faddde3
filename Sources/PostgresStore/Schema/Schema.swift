#if PostgreSQL
import TokenStore

/// The tables, and what a server needs of them.
///
/// Each version of the program works with one version of them only.
enum Schema {
    /// The number in the table `store`.
    static let version = 4
    /// The number there while `token-cache copy` fills the store, and after its interruption; no version opens such a store.
    static let versionWhileFilled = -version

    /// The advisory lock that all connections of servers share, and that `token-cache copy` holds exclusively while it fills the
    /// store.
    ///
    /// Each store in the database has a different second number.
    static let useLock = "(1953461099, 'store'::regclass::oid::integer)"

    /// The statements that make the tables and indexes, and the first rows; `additions` follow.
    static let statements =
        tables + indexes + options + [
            "INSERT INTO store (one, schema_version, is_sealed) VALUES (1, \(version), true)",
            """
            INSERT INTO sealing_key SELECT number, ''
            FROM unnest(ARRAY[0, \(Statement.tombstoneKeyNumber), \(Statement.erasedKeyNumber)]) AS number
            """,
        ]

    private static let tables = [
        // The keys that rows may be sealed with; negative numbers are for removed tokens, 0 is for trials (see Upkeep) and for values
        // in the clear, which version 1.0 may have stored.
        "CREATE TABLE sealing_key (number bigint PRIMARY KEY, fingerprint text NOT NULL)",
        // A removed token has no value, and `written_at` is the time of its removal.
        """
        CREATE TABLE token (
            key bytea PRIMARY KEY, version bigint NOT NULL, written_at bigint NOT NULL, expires_at bigint,
            key_number bigint NOT NULL, value bytea)
        """,
        """
        CREATE TABLE session (
            key bytea PRIMARY KEY, id bytea NOT NULL, user_key bytea NOT NULL, number bigint NOT NULL,
            created_at bigint NOT NULL, expires_at bigint NOT NULL, used_at bigint NOT NULL,
            key_number bigint NOT NULL, user_value bytea NOT NULL)
        """,
        // One row. Until a server first starts, `key_ring` is NULL. `sealing_key` is the key that seals, `walk` is a `WalkState`,
        // and `is_sealed` is false only if version 1.0 has stored values without encryption.
        """
        CREATE TABLE store (
            one integer PRIMARY KEY CHECK (one = 1), schema_version integer NOT NULL, key_ring bytea,
            is_sealed boolean NOT NULL, sealing_key bigint REFERENCES sealing_key, looked_at bigint, walk text)
        """,
    ]

    /// The statements that bring tables of version 1.0 up to date; servers of that version can go on using them.
    ///
    /// A trigger lets PostgreSQL refuse a row with a retired key, and refuse to retire a key that a row needs, in the place of
    /// foreign keys: with many writers, these make a MultiXact for each commit with a new row, and many of those make PostgreSQL
    /// vacuum whole tables. The errors are those of foreign keys, so servers of version 1.0 know them. The check runs only when the
    /// key of a row changes, so a POST that replaces a token costs nothing more.
    static let additions =
        [
            // Transactions of servers lock in this order too. They wait no longer than this, if for example pg_dump has a lock.
            "SET LOCAL lock_timeout = '2s'",
            "LOCK TABLE session, token, sealing_key",
            // Rows that are not committed yet have a shared lock on their key. Afterwards, the search sees them.
            """
            CREATE OR REPLACE FUNCTION check_key() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                IF TG_OP = 'DELETE' THEN
                    PERFORM pg_advisory_xact_lock('sealing_key'::regclass::oid::integer, hashint8(OLD.number));
                    IF EXISTS (SELECT FROM token WHERE key_number = OLD.number UNION ALL
                        SELECT FROM session WHERE key_number = OLD.number) THEN
                        RAISE foreign_key_violation;
                    END IF;
                    RETURN OLD;
                END IF;
                PERFORM pg_advisory_xact_lock_shared('sealing_key'::regclass::oid::integer, hashint8(NEW.key_number));
                IF NOT EXISTS (SELECT FROM sealing_key WHERE number = NEW.key_number) THEN
                    RAISE foreign_key_violation;
                END IF;
                RETURN NULL;
            END $$
            """,
            "CREATE OR REPLACE TRIGGER check_key BEFORE DELETE ON sealing_key \(checking)",
        ]
        + ["session", "token"].flatMap { table in
            [
                "ALTER TABLE \(table) DROP CONSTRAINT IF EXISTS \(table)_key_number_fkey",
                "CREATE OR REPLACE TRIGGER check_new_key AFTER INSERT ON \(table) \(checking)",
                """
                CREATE OR REPLACE TRIGGER check_key AFTER UPDATE ON \(table) FOR EACH ROW
                WHEN (OLD.key_number <> NEW.key_number) EXECUTE FUNCTION check_key()
                """,
            ]
        } + ["ALTER TABLE store ADD COLUMN IF NOT EXISTS walk text"]

    private static let checking = "FOR EACH ROW EXECUTE FUNCTION check_key()"

    /// Indexes of version 1.0 by which servers found what had expired.
    static let formerIndexes = [
        "token_by_removal", "token_by_writing", "token_by_expiration", "session_by_expiration", "session_by_use",
    ]

    private static let indexes = [
        "CREATE INDEX session_by_id ON session (id)",
        "CREATE INDEX session_by_user ON session (user_key, number)",
    ]

    private static let options = [
        // Leaves room in each page for new versions of its rows, and removes dead rows long before they are a fifth of the table,
        // as by PostgreSQL's default.
        """
        ALTER TABLE token SET (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02,
            autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05)
        """,
        """
        ALTER TABLE session SET (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02,
            autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05)
        """,
        // Sealed values cannot be compressed.
        "ALTER TABLE token ALTER COLUMN value SET STORAGE EXTERNAL",
    ]
}

extension Schema {
    /// Throws unless the tables have this program's version, survive a crash, and the connection's role may use all their rows.
    ///
    /// - Parameter fills: Whether the store is opened to be filled, see `versionWhileFilled`.
    static func check(_ connection: BlockingConnection, fills: Bool = false) throws(PostgresError) -> StoreRow {
        let row: StoreRow?
        do {
            row = try StoreRow.read(from: connection)
        } catch {
            guard error.state == .noPrivilege else { throw error }
            row = nil
            try checkPrivileges(connection)
        }
        guard let row else {
            let found = try connection.run(
                """
                SELECT current_database()::text, coalesce(string_agg(DISTINCT nspname, ', '), '')
                FROM pg_namespace, pg_class WHERE relnamespace = pg_namespace.oid AND relname = 'sealing_key' AND relkind = 'r'
                """)
            let schemas = found.text(0, 1)
            let search =
                schemas.isEmpty
                ? "" : "set the role's search_path to their schema (there are such tables in \(schemas)), or "
            throw .unexpected(
                """
                the database \(found.text(0, 0)) on \(connection.postgres.address) has no tables of token-cache, or this role may \
                not see them (its search_path, USAGE on their schema)
                """,
                advice: """
                    \(search)make them with token-cache migrate, as a role that may make tables (deploy/postgresql/roles.sql makes the \
                    roles)
                    """)
        }
        if let fault = fault(of: row, fills: fills) { throw fault }
        try checkPrivileges(connection)
        try checkDurability(connection)
        return row
    }

    /// Why this version of the program cannot use the tables; nil if it can.
    static func fault(of row: StoreRow, fills: Bool = false) -> PostgresError? {
        guard row.schemaVersion != version else { return nil }
        if row.isBeingFilled {
            guard !fills else { return nil }
            return .unexpected(
                "token-cache copy has not filled the store completely",
                advice: """
                    if it was interrupted and its source has not changed, run it again, and it continues; or make new tables in another \
                    database or schema, with token-cache migrate
                    """)
        }
        return .unexpected(
            """
            the database has schema \(row.schemaVersion), and this version of token-cache reads and writes schema \(version) only
            """,
            advice: """
                run the version that made it, or take its tokens over (token-cache export with that version, token-cache import with \
                this one, into a new database); nothing was changed
                """)
    }

    private static let tableNames = ["token", "session", "sealing_key", "store"]

    /// Throws if PostgreSQL would empty a table, or a partition of it, after a crash.
    private static func checkDurability(_ connection: BlockingConnection) throws(PostgresError) {
        let unlogged = try connection.run(
            """
            SELECT string_agg(oid::regclass::text, ', ') FROM pg_class WHERE relpersistence <> 'p'
            AND oid IN (SELECT name::regclass FROM unnest(ARRAY['\(tableNames.joined(separator: "', '"))']) AS name
                UNION SELECT relid FROM pg_partition_tree('token') UNION SELECT relid FROM pg_partition_tree('session'))
            """)
        guard !unlogged.isNull(0, 0) else { return }
        throw .unexpected(
            "a crash of the database would empty \(unlogged.text(0, 0)), as UNLOGGED tables are not durable",
            advice: "run ALTER TABLE ... SET LOGGED for each")
    }

    /// Throws unless the connection's role may read and change all rows of all tables.
    private static func checkPrivileges(_ connection: BlockingConnection) throws(PostgresError) {
        let privileges = ["SELECT", "INSERT", "UPDATE", "DELETE"]
        let wanted = tableNames.flatMap { table in privileges.map { (table, $0) } }
        let questions =
            wanted.map { "has_table_privilege('\($0)', '\($1)')" } + tableNames.map { "row_security_active('\($0)')" }
        let result = try connection.run("SELECT \(questions.joined(separator: ", "))")
        let hiding = tableNames.indices.filter { result.integer(0, wanted.count + $0) != 0 }.map { tableNames[$0] }
        guard hiding.isEmpty else {
            throw .unexpected(
                "row-level security may hide rows of \(hiding.joined(separator: ", ")) from this role",
                advice: """
                    disable it (ALTER TABLE ... DISABLE ROW LEVEL SECURITY), or exempt the role (ALTER ROLE ... BYPASSRLS)
                    """)
        }
        let missing = wanted.indices.filter { result.integer(0, $0) == 0 }.map { "\(wanted[$0].1) on \(wanted[$0].0)" }
        guard !missing.isEmpty else { return }
        let role = try connection.role()
        throw .unexpected(
            "the role \(role) lacks privileges (\(missing.joined(separator: ", ")))",
            advice: """
                as the tables' owner, run GRANT \(privileges.joined(separator: ", ")) ON \(tableNames.joined(separator: ", ")) \
                TO "\(role)"; for tables that the owner of deploy/postgresql/roles.sql makes after it was run, PostgreSQL does so by \
                itself
                """)
    }
}

extension BlockingConnection {
    /// The role with whose rights this connection's statements run.
    func role() throws(PostgresError) -> String { try run("SELECT current_user::text").text(0, 0) }
}
#endif
