internal import CSQLite
internal import Dispatch
internal import Synchronization

/// Does most of a checkpoint ahead of it, so that commits wait for little.
///
/// A checkpoint writes the WAL's pages into the database and syncs it: for some thousand pages of a large store that takes
/// from milliseconds to seconds, in which commits wait, as they are the same connection's (see SQLiteTokenStore). But while
/// somebody reads an earlier state of the WAL, SQLite moves no page of a later one, and does not sync the database
/// (sqlite.org/wal.html, section 2.2; walCheckpoint in its wal.c). So this reads one from before a commit until after it. The
/// pages up to there are moved, and then synced on a thread of its own while further commits go on.
///
/// The checkpoint syncs the database once more before the WAL begins anew, and then finds little to be written. But when the
/// earlier sync has failed, the system may take those pages for written: so that failure is the checkpoint's as well.
final class BackgroundCheckpointer: @unchecked Sendable {
    // Unchecked: the writer's thread uses it, and while `isSynchronizing` the queue does.

    private let connection: SQLiteConnection
    private let begin: SQLiteStatement
    private let read: SQLiteStatement
    private let end: SQLiteStatement
    private let queue = DispatchQueue(label: "checkpointer")
    private let isUnderWay = Atomic<Bool>(false)
    /// SQLite's result code of the last sync that failed.
    private let failure = Atomic<Int32>(SQLITE_OK)
    /// Whether an earlier state is being read.
    private(set) var isHolding = false

    init(path: String) throws(SQLiteError) {
        connection = try SQLiteConnection(path: path, mode: .readOnly)
        // As in TokenReader.
        try connection.execute("PRAGMA wal_autocheckpoint = 0")
        begin = try SQLiteStatement("BEGIN", on: connection)
        read = try SQLiteStatement("SELECT 1 FROM store", on: connection)
        end = try SQLiteStatement("COMMIT", on: connection)
    }

    /// Begins to read the database as it is now; nothing may be synced meanwhile.
    func hold() throws(SQLiteError) {
        isHolding = true
        try begin.run()
        try read.run()
    }

    /// Ends reading it.
    func release() {
        guard isHolding else { return }
        isHolding = false
        try? end.run()
        // Whatever kept it from ending.
        if connection.isInTransaction { try? connection.execute("ROLLBACK") }
    }

    /// Whether the database is being synced.
    var isSynchronizing: Bool { isUnderWay.load(ordering: .acquiring) }

    /// Has the database synced while the caller goes on; nothing may be held meanwhile.
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

    /// Holds nothing any more, and returns when everything that was ever moved is synced.
    func finish() throws(SQLiteError) {
        release()
        queue.sync {}
        let code = failure.load(ordering: .relaxed)
        guard code == SQLITE_OK else {
            throw SQLiteError(code: code, message: "the database could not be synced", sql: "checkpoint")
        }
    }
}
