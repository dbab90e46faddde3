import CSQLite
import Dispatch
import Synchronization

/// Syncs most of a checkpoint in the background, so that the checkpoint of the whole WAL is short.
///
/// A checkpoint writes the WAL's pages into the database and syncs it. With thousands of pages of a large store this
/// takes milliseconds to seconds, during which commits wait, because the same connection does both (see
/// SQLiteTokenStore). But while a connection reads an earlier state of the WAL, SQLite moves no later page and does not
/// sync the database (sqlite.org/wal.html, section 2.2; walCheckpoint in its wal.c). So this connection begins to read
/// before a commit and ends after it: a checkpoint in between copies the pages up to there, on the writer's thread but
/// without a sync. Then the database is synced on another thread while commits continue.
///
/// The final checkpoint syncs the database again before the WAL is restarted, and finds little to write. If the earlier
/// sync has failed, the system may take its pages for written, so the final checkpoint fails as well.
final class BackgroundSync: @unchecked Sendable {
    // Unchecked: the writer's thread uses it, and the queue while `isSynchronizing`.

    private let connection: SQLiteConnection
    private let queue = DispatchQueue(label: "checkpoint sync")
    private let isUnderWay = Atomic<Bool>(false)
    /// SQLite's result code of the last sync that failed.
    private let failure = Atomic<Int32>(SQLITE_OK)

    init(path: String) throws(SQLiteError) {
        connection = try SQLiteConnection(path: path, mode: .readOnly)
        // As in TokenReader.
        try connection.execute("PRAGMA wal_autocheckpoint = 0")
    }

    /// Begins to read the present state, not while a sync is running; returns whether that was possible.
    func hold() -> Bool {
        do {
            try connection.execute("BEGIN; SELECT 1 FROM store")
            return true
        } catch {
            release()
            return false
        }
    }

    /// Ends the read.
    func release() {
        if connection.isInTransaction { try? connection.execute("ROLLBACK") }
    }

    /// Whether the database is being synced.
    var isSynchronizing: Bool { isUnderWay.load(ordering: .acquiring) }

    /// Syncs the database in the background; not while a state is held.
    ///
    /// - Parameter whenDone: Called on another thread.
    func synchronize(whenDone: @escaping @Sendable () -> Void) {
        isUnderWay.store(true, ordering: .relaxed)
        queue.async { [self] in
            let code = connection.synchronizeFile()
            if code != SQLITE_OK { failure.store(code, ordering: .relaxed) }
            isUnderWay.store(false, ordering: .releasing)
            whenDone()
        }
    }

    /// Waits for the sync; throws the error of any sync so far.
    func finish() throws(SQLiteError) {
        queue.sync {}
        let code = failure.load(ordering: .relaxed)
        guard code == SQLITE_OK else {
            throw SQLiteError(code: code, message: "the database could not be synced")
        }
    }
}
