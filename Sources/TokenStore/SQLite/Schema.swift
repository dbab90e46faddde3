/// The tables, by the version that `PRAGMA user_version` holds.
///
/// A rowid table with an index on the key: values may be large, and a replaced value then changes one page of the table
/// and none of the index.
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
        """
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
