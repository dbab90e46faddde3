import CSQLite
import Glibc
import System
import TokenStore

/// The tables.
///
/// Rows are found by their slots, see `RowSlots`: one B-tree holds everything of a token. Its inner pages hold only
/// rowids, so it stays flat however long rows are. The value is the last column, so that the others are read without
/// following its overflow pages.
///
/// Even a sealed file reveals how many tokens there are, their lengths, when and in which order they were written, and
/// when they expire.
enum Schema {
    /// Marks a database as ours (sqlite.org/pragma.html#pragma_application_id): the letters `tokc`.
    static let applicationID = 0x746f_6b63

    /// The version of the tables and of their rows.
    ///
    /// Versions 1 to 5 were never released.
    static let version = CheckpointMark.schemaVersion

    private static let tables = """
        CREATE TABLE token (
            slot INTEGER PRIMARY KEY,
            key BLOB NOT NULL,
            written_at INTEGER NOT NULL,
            expires_at INTEGER,
            key_number INTEGER NOT NULL,
            version INTEGER NOT NULL,
            value BLOB NOT NULL
        ) STRICT;
        CREATE TABLE store (
            one INTEGER PRIMARY KEY CHECK (one = 1),
            key_ring BLOB,
            tokens INTEGER NOT NULL,
            slot_key BLOB NOT NULL,
            looked_at INTEGER,
            version_limit INTEGER NOT NULL,
            sessions INTEGER NOT NULL
        ) STRICT;
        \(sessionTable);
        INSERT INTO store (one, key_ring, tokens, slot_key, looked_at, version_limit, sessions)
        VALUES (1, NULL, 0, randomblob(32), CAST(strftime('%s', 'now') AS INTEGER), 0, 0)
        """

    /// The sessions of users, see SessionRow.
    ///
    /// `number` grows with each session, as those of one second have no other order.
    ///
    /// Without a row's own number, everything of a session is found by one descent in one B-tree.
    private static let sessionTable = """
        CREATE TABLE session (
            key BLOB PRIMARY KEY NOT NULL,
            id BLOB NOT NULL,
            user_key BLOB NOT NULL,
            number INTEGER NOT NULL,
            created_at INTEGER NOT NULL,
            expires_at INTEGER NOT NULL,
            used_at INTEGER NOT NULL,
            key_number INTEGER NOT NULL,
            user BLOB NOT NULL
        ) STRICT, WITHOUT ROWID
        """

    static let indexes = """
        CREATE UNIQUE INDEX session_by_id ON session (id);
        CREATE INDEX session_by_user ON session (user_key, number)
        """

    /// Checks that a database is one of this program, and returns its version: 0 for a new one.
    ///
    /// Only reads, so a database of another program or of another version stays as it is.
    static func check(_ connection: SQLiteConnection, path: String) throws(SQLiteOpenError) -> Int {
        let (found, application, isEmpty, pageSize) = try opening(path) { () throws(SQLiteError) in
            // Has no effect on a database with content (sqlite.org/pragma.html#pragma_page_size).
            try connection.execute("PRAGMA page_size = \(SQLiteConnection.pageSize)")
            return (
                try connection.integer("PRAGMA user_version") & 0xff,
                try connection.integer("PRAGMA application_id"),
                try connection.integer("SELECT count(*) FROM sqlite_schema") == 0,
                try connection.integer("PRAGMA page_size")
            )
        }
        guard application == applicationID || (application == 0 && found == 0 && isEmpty) else {
            throw .foreign(path: path)
        }
        guard found == version || found == 0 && isEmpty else {
            throw .otherVersion(path: path, version: found, supported: version)
        }
        guard pageSize == SQLiteConnection.pageSize else {
            let reason = """
                another program has changed the size of its pages from \(SQLiteConnection.pageSize) to \(pageSize) bytes; change \
                it back with sqlite3: PRAGMA journal_mode = DELETE; PRAGMA page_size = \(SQLiteConnection.pageSize); VACUUM
                """
            throw .database(path: path, SQLiteError(code: SQLITE_ERROR, message: reason))
        }
        return found
    }

    /// Whether a database has no row of any kind, whatever it counts.
    static func isEmpty(_ connection: SQLiteConnection) throws(SQLiteError) -> Bool {
        for table in ["token", "session"]
        where try connection.integer("SELECT EXISTS (SELECT 1 FROM \(table))") == 1 { return false }
        return true
    }

    /// Makes the tables in a new database.
    ///
    /// - Parameter indexes: Whether to make the indexes as well.
    static func create(_ connection: SQLiteConnection, indexes: Bool = true) throws(SQLiteError) {
        try connection.execute(
            """
            BEGIN IMMEDIATE;
            \(tables);
            \(indexes ? Self.indexes : "");
            PRAGMA application_id = \(applicationID);
            PRAGMA user_version = \(version);
            COMMIT
            """
        )
    }

    /// Undoes `WriterConnection.upgrade` in a backup, which version 1.0 would not restore otherwise; a restored store begins its walk anew.
    static let downgrade = """
        CREATE INDEX IF NOT EXISTS session_by_expiration ON session (expires_at);
        CREATE INDEX IF NOT EXISTS session_by_use ON session (used_at);
        DROP TABLE IF EXISTS walk
        """

    /// The state of the walk in a database; nil before the first one.
    static func walk(of connection: SQLiteConnection) -> WalkState? {
        (try? connection.text("SELECT state FROM walk")).flatMap { WalkState($0) }
    }

    /// Makes the table with the walk's state, which version 1.0 did not have.
    static let walkTable = "CREATE TABLE IF NOT EXISTS walk (one INTEGER PRIMARY KEY, state BLOB NOT NULL) STRICT"

    /// Replaces the state of the walk, in the open transaction.
    ///
    /// - Parameter walk: The state's text.
    static func set(walk: String, in connection: SQLiteConnection) throws(SQLiteError) {
        let save = try SQLiteStatement(
            "INSERT INTO walk VALUES (1, ?1) ON CONFLICT (one) DO UPDATE SET state = excluded.state", on: connection)
        try save.bind(Array(walk.utf8), at: 1)
        try save.run()
    }

    /// What is wrong with the definitions of a database's tables and indexes; nil if nothing is.
    ///
    /// Reading all rows does not show that: SQLite ignores CHECK constraints, damaged ones included, in a database that is opened
    /// for reading only (`sqlite3AddCheckConstraint` in its `build.c`), and some columns are used only by a store that writes.
    static func damage(of connection: SQLiteConnection) throws(SQLiteError) -> String? {
        func definitions(_ connection: SQLiteConnection) throws(SQLiteError) -> Set<[UInt8]> {
            let select = try SQLiteStatement("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL", on: connection)
            var definitions: Set<[UInt8]> = []
            while try select.step() { definitions.insert(select.blob(at: 0)) }
            return definitions
        }
        let sound = try SQLiteConnection(path: ":memory:", mode: .readWriteCreate)
        try create(sound)
        let isSound = try definitions(sound).isSubset(of: try definitions(connection))
        return isSound ? nil : "the definitions of its tables are damaged"
    }

    /// How many tokens and sessions a database counts.
    static func counts(of connection: SQLiteConnection) throws(SQLiteError) -> CopyCount {
        // A manipulated file may hold any number.
        func count(_ column: String) throws(SQLiteError) -> Int {
            min(max(0, try connection.integer("SELECT \(column) FROM store")), Int.max / 4)
        }
        return CopyCount(tokens: try count("tokens"), sessions: try count("sessions"))
    }

    /// When the clock was last found right, in seconds since 1970; nil if that was never stored.
    static func clockLook(of connection: SQLiteConnection) throws(SQLiteError) -> Int64? {
        let select = try SQLiteStatement("SELECT looked_at FROM store", on: connection)
        return try select.step() ? select.optionalInteger(at: 0) : nil
    }

    /// A number that no version of a token has exceeded.
    static func versionLimit(of connection: SQLiteConnection) throws(SQLiteError) -> Int64 {
        // A manipulated file may hold any number. The largest that is accepted leaves room for more, and is beyond the
        // versions of stores on PostgreSQL, whose tokens may have been copied here.
        min(max(0, Int64(try connection.integer("SELECT version_limit FROM store"))), .max - 1 << 56)
    }

    /// When the last token was stored, or up to a minute later, but not after this moment; nil if none ever was.
    ///
    /// Shows an operator how old a copied store is.
    static func lastWrite(to connection: SQLiteConnection) -> String? {
        guard let limit = try? versionLimit(of: connection), limit > 0 else { return nil }
        return UTCTime.timestamp(min(limit / 1_000_000, Int64(time(nil))))
    }

    /// Raises the version limit of a database, if it is smaller.
    static func raiseVersionLimit(_ limit: Int64, in connection: SQLiteConnection) throws(SQLiteError) {
        try connection.execute("UPDATE store SET version_limit = max(version_limit, \(limit))")
    }

    /// How many erasures of users a database knows of; the table is made with the first one.
    static func erasures(of connection: SQLiteConnection) -> Int {
        min(max(0, (try? connection.integer("SELECT count FROM erasure")) ?? 0), Int.max / 4)
    }

    /// Sets how many erasures a database knows of, in the open transaction.
    static func set(erasures count: Int, in connection: SQLiteConnection) throws(SQLiteError) {
        try connection.execute(
            """
            CREATE TABLE IF NOT EXISTS erasure (count INTEGER NOT NULL) STRICT;
            DELETE FROM erasure;
            INSERT INTO erasure VALUES (\(count))
            """)
    }

    /// Translates SQLite's errors into reasons why the store cannot be opened.
    static func opening<Result>(
        _ path: String, _ body: () throws(SQLiteError) -> Result
    ) throws(SQLiteOpenError) -> Result {
        do {
            return try body()
        } catch {
            if error.isBusy { throw .openElsewhere(path: path) }
            throw error.isNotADatabase ? .notADatabase(path: path, error) : .database(path: path, error)
        }
    }
}
