internal import TokenStore

/// Finds out whether a store could be opened with the tables of a database, which is only read.
///
/// Reading its rows does not show that: SQLite ignores CHECK constraints where it cannot write (`sqlite3AddCheckConstraint` in its
/// `build.c`), and only a store that writes uses all columns. So the tables are made again in memory, without rows, and upgraded
/// and opened as they would be.
enum SchemaTrial {
    /// What would keep the store from being opened; nil if nothing would.
    ///
    /// - Parameters:
    ///   - connection: To the database, whose structure is sound.
    ///   - version: Of its schema, from `Schema.firstInPlace` on.
    ///   - options: Those of the store.
    static func fault(
        of connection: SQLiteConnection, version: Int, _ options: StoreOptions
    ) throws(SQLiteError) -> String? {
        let definitions = try definitions(of: connection)
        do throws(SQLiteError) {
            let memory = try SQLiteConnection(path: ":memory:", mode: .readWriteCreate)
            for definition in definitions { try SQLiteStatement(definition, on: memory).run() }
            if version < Schema.version { try Schema.upgrade(memory, from: version) }
            try memory.execute(Schema.firstRow)
            let writer = try WriterConnection(memory, options: options)
            _ = try writer.sessions(Sealing(.clear(index: try Schema.slotKey(of: memory))))
            return nil
        } catch {
            return "the definitions of its tables are damaged: \(error.message)"
        }
    }

    /// The statements that make the tables and their indexes.
    ///
    /// SQLite has already parsed them when it opened the database, and would have refused one that computes or fetches anything.
    private static func definitions(of connection: SQLiteConnection) throws(SQLiteError) -> [String] {
        let select = try SQLiteStatement(
            """
            SELECT sql FROM sqlite_schema WHERE tbl_name IN ('token', 'store', 'seal', 'session') AND sql IS NOT NULL
            AND type IN ('table', 'index') ORDER BY type DESC
            """,
            on: connection
        )
        var definitions: [String] = []
        while try select.step() { definitions.append(String(decoding: select.blob(at: 0), as: UTF8.self)) }
        return definitions
    }
}
