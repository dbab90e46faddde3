internal import TokenStore

/// Finds out whether a store could work with the tables of a backup, without writing to the backup.
///
/// Reading all rows is not enough. In a database that is opened for reading only, SQLite ignores CHECK constraints, damaged ones
/// included (`sqlite3AddCheckConstraint` in its `build.c`). And some columns are used only by a store that writes. So empty copies of
/// the tables are created in memory, and opened there as after a restore.
enum SchemaTrial {
    /// Why the store could not be opened with these tables; nil if it could.
    ///
    /// - Parameters:
    ///   - connection: To the database, whose structure is sound.
    ///   - options: Those of the store.
    static func fault(
        of connection: SQLiteConnection, _ options: StoreOptions
    ) throws(SQLiteError) -> String? {
        let definitions = try definitions(of: connection)
        do throws(SQLiteError) {
            let memory = try SQLiteConnection(path: ":memory:", mode: .readWriteCreate)
            for definition in definitions { try SQLiteStatement(definition, on: memory).run() }
            try memory.execute(Schema.firstRow)
            let writer = try WriterConnection(memory, options: options)
            _ = try writer.sessions(Sealing(.clear(index: try Schema.slotKey(of: memory))))
            return nil
        } catch {
            return "the definitions of its tables are damaged: \(error.message)"
        }
    }

    /// The statements that create the tables and their indexes.
    ///
    /// They are safe to execute: SQLite parsed them when it opened the database, and accepts only plain definitions there.
    private static func definitions(of connection: SQLiteConnection) throws(SQLiteError) -> [String] {
        let select = try SQLiteStatement(
            """
            SELECT sql FROM sqlite_schema WHERE tbl_name IN ('token', 'store', 'session') AND sql IS NOT NULL
            AND type IN ('table', 'index') ORDER BY type DESC
            """,
            on: connection
        )
        var definitions: [String] = []
        while try select.step() { definitions.append(String(decoding: select.blob(at: 0), as: UTF8.self)) }
        return definitions
    }
}
