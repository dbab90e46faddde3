extension SQLiteConnection {
    /// Findings of SQLite's integrity check, tokens that are there twice, and tables that cannot be written to; empty for a
    /// sound database.
    func structuralDamages() throws(SQLiteError) -> [String] {
        let check = try SQLiteStatement("PRAGMA integrity_check(20)", on: self)
        var damages: [String] = []
        while try check.step() { damages.append(String(decoding: check.blob(at: 0), as: UTF8.self)) }
        if damages == ["ok"] { damages = [] }
        let doubles = try integer(
            """
            SELECT count(*) FROM token AS one JOIN token AS other
            ON other.slot BETWEEN one.slot + 1 AND one.slot + \(RowSlots.count - 1) AND other.key = one.key
            """
        )
        if doubles > 0 { damages.append("\(doubles) \(doubles == 1 ? "token is" : "tokens are") there twice") }
        return damages + (try refusedTables())
    }

    /// Tables whose definitions SQLite refuses as soon as a database can be written to.
    ///
    /// Where it only reads, it ignores the CHECK constraints (`sqlite3AddCheckConstraint` in its `build.c`), so a backup with a
    /// damaged one would seem sound until it is restored.
    private func refusedTables() throws(SQLiteError) -> [String] {
        let memory = try SQLiteConnection(path: ":memory:", mode: .readWriteCreate)
        let select = try SQLiteStatement(
            "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'",
            on: self)
        var refused: [String] = []
        while try select.step() {
            let (name, definition) = (select.blob(at: 0), select.blob(at: 1))
            do throws(SQLiteError) {
                // Compiled only: nothing of a damaged definition is executed.
                _ = try SQLiteStatement(String(decoding: definition, as: UTF8.self), on: memory)
            } catch {
                let table = String(decoding: name, as: UTF8.self)
                refused.append("the definition of the table \(table) is damaged: \(error.message)")
            }
        }
        return refused
    }
}
