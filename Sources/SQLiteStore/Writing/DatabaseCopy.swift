internal import CSQLite

/// A copy of a database that is made step by step while the database changes.
///
/// What the source's connection writes between two steps, SQLite also writes to the copy, so that copying never has to
/// start again (sqlite.org/c3ref/backup_finish.html). A complete copy is the database as of the last step.
///
/// Used on the source's thread.
@safe final class DatabaseCopy {
    private let source: SQLiteConnection
    private let target: SQLiteConnection
    private let handle: OpaquePointer

    /// - Parameter path: An empty file.
    init(of source: SQLiteConnection, to path: String) throws(SQLiteError) {
        target = try SQLiteConnection(path: path, mode: .readWrite)
        // The copy is not used before it is complete and synced; after a crash an incomplete one is discarded.
        try target.giveUpSafety()
        guard let handle = unsafe sqlite3_backup_init(target.handle, "main", source.handle, "main") else {
            throw target.lastError("backup")
        }
        unsafe self.handle = unsafe handle
        self.source = source
    }

    deinit {
        _ = unsafe sqlite3_backup_finish(handle)
    }

    /// Copies some pages.
    ///
    /// - Returns: How many pages are left, and how many there are.
    func step(pages: Int32) throws(SQLiteError) -> (remaining: Int, total: Int) {
        switch unsafe sqlite3_backup_step(handle, pages) {
        case SQLITE_DONE: return (0, Int(unsafe sqlite3_backup_pagecount(handle)))
        // Busy and locked: the lock will be released, and another step continues.
        case SQLITE_OK, SQLITE_BUSY, SQLITE_LOCKED:
            return (
                max(1, Int(unsafe sqlite3_backup_remaining(handle))), Int(unsafe sqlite3_backup_pagecount(handle))
            )
        case let code:
            throw SQLiteError(code: code, message: unsafe String(cString: sqlite3_errstr(code)), sql: "backup")
        }
    }
}
