extension SQLiteConnection {
    /// Checks that every page of the database is sound; takes time in proportion to its size.
    func checkIntegrity() throws(SQLiteError) {
        let result = try text("PRAGMA integrity_check(1)")
        guard result == "ok" else { throw .damaged(result) }
    }
}
