/// The tables, by the version that `PRAGMA user_version` holds.
///
/// A rowid table with an index on the key: values may be large, and a replaced value then changes one page of the table
/// and none of the index. The value stands last, so that the columns before it are read without walking through it.
///
/// What a stolen file tells even when it is sealed: how many tokens there are, how long they are, when each was written and
/// when it expires.
enum Schema {
    /// Marks a database as ours (sqlite.org/pragma.html#pragma_application_id): the letters `tokc`.
    static let applicationID = 0x746f_6b63

    /// Migration `n` leads from version `n` to version `n + 1`.
    static let migrations = [
        """
        CREATE TABLE token (
            key BLOB NOT NULL PRIMARY KEY,
            value BLOB NOT NULL,
            written_at INTEGER NOT NULL
        ) STRICT
        """,
        """
        ALTER TABLE token RENAME TO token_1;
        CREATE TABLE token (
            key BLOB NOT NULL PRIMARY KEY,
            written_at INTEGER NOT NULL,
            expires_at INTEGER,
            key_number INTEGER NOT NULL,
            value BLOB NOT NULL
        ) STRICT;
        INSERT INTO token (key, written_at, key_number, value) SELECT key, written_at, 0, value FROM token_1;
        DROP TABLE token_1;
        CREATE TABLE store (
            one INTEGER PRIMARY KEY CHECK (one = 1),
            key_ring BLOB,
            tokens INTEGER NOT NULL
        ) STRICT;
        INSERT INTO store (one, key_ring, tokens) SELECT 1, NULL, count(*) FROM token
        """,
    ]

    static var version: Int { migrations.count }

    /// Whose database this is and which version it has: 0 for a new one.
    ///
    /// Only reads: what is not ours, or too new, stays as it is.
    static func check(_ connection: SQLiteConnection, path: String) throws(StoreOpenError) -> Int {
        let (found, application, isEmpty) = try opening(path) { () throws(SQLiteError) in
            (
                try connection.integer("PRAGMA user_version"),
                try connection.integer("PRAGMA application_id"),
                try connection.integer("SELECT count(*) FROM sqlite_schema") == 0
            )
        }
        guard application == applicationID || (application == 0 && found == 0 && isEmpty) else {
            throw .foreign(path: path)
        }
        guard found <= version else { throw .newer(path: path, version: found, supported: version) }
        return found
    }

    /// Brings a database to the current version, each step in a transaction of its own.
    static func migrate(_ connection: SQLiteConnection, from found: Int) throws(SQLiteError) {
        for step in found..<version {
            try connection.execute(
                """
                BEGIN IMMEDIATE;
                \(migrations[step]);
                PRAGMA application_id = \(applicationID);
                PRAGMA user_version = \(step + 1);
                COMMIT
                """
            )
        }
        // Pages that tokens leave behind can then be given back one by one. In a database with tables it takes a VACUUM;
        // asked for again until it has happened, whatever came in between.
        if try connection.integer("PRAGMA auto_vacuum") != 2 {
            try connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            try connection.execute("VACUUM")
        }
    }

    /// Makes or drops the indexes that retention needs: each costs every write a little, and is there only when used.
    static func index(_ connection: SQLiteConnection, for retention: Retention) throws(SQLiteError) {
        try connection.execute(
            retention.sinceWritten == nil
                ? "DROP INDEX IF EXISTS token_by_writing"
                : "CREATE INDEX IF NOT EXISTS token_by_writing ON token (written_at)"
        )
        try connection.execute(
            retention.sinceExpired == nil
                ? "DROP INDEX IF EXISTS token_by_expiration"
                : """
                CREATE INDEX IF NOT EXISTS token_by_expiration ON token (expires_at) WHERE expires_at IS NOT NULL
                """
        )
    }

    /// Says of SQLite's errors what they mean for opening the store.
    static func opening<Result>(
        _ path: String, _ body: () throws(SQLiteError) -> Result
    ) throws(StoreOpenError) -> Result {
        do throws(SQLiteError) {
            return try body()
        } catch {
            throw error.isNotADatabase ? .notADatabase(path: path, error) : .database(path: path, error)
        }
    }
}
