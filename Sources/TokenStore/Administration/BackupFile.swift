/// A backup: the database in one file, without a log.
enum BackupFile {
    /// Makes a fresh copy a file of its own, checks it and syncs it.
    ///
    /// - Returns: How many tokens it holds.
    static func finish(_ path: String) throws(StoreError) -> Int {
        let tokens: Int
        do throws(SQLiteError) {
            let connection = try SQLiteConnection(path: path, mode: .readWrite)
            // Out of WAL mode, which the copy has from its source, there is no second file that belongs to it.
            _ = try connection.text("PRAGMA journal_mode = DELETE")
            tokens = try check(connection)
        } catch {
            throw .write(error)
        }
        try PrivateFile.synchronize(path)
        return tokens
    }

    /// The number of tokens of a sound database.
    static func check(_ connection: SQLiteConnection) throws(SQLiteError) -> Int {
        let result = try connection.text("PRAGMA integrity_check(1)")
        guard result == "ok" else { throw .damaged(result) }
        return try connection.integer("SELECT tokens FROM store")
    }
}
