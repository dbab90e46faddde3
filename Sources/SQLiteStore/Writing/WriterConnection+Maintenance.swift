import CSQLite
import Glibc
import TokenStore

/// The writer's maintenance between groups, in small steps: each is a transaction of its own that delays commits only
/// briefly.
extension WriterConnection {
    /// Rows that one step of an expiry removes.
    private static let expiryBatch = 256

    /// Removes some expired tokens and sessions, the oldest first.
    ///
    /// - Parameters:
    ///   - retention: The retention in force.
    ///   - now: In seconds since 1970.
    /// - Returns: How many tokens were removed and how many sessions have ended, and whether nothing is left that has expired.
    func expire(
        _ retention: Retention, at now: Int64
    ) throws(SQLiteError) -> (removed: Int, ended: Int, isDone: Bool) {
        let horizon = retention.horizon(at: now)
        var (removed, ended) = (0, 0)
        try transaction { () throws(SQLiteError) in
            if let written = horizon?.written {
                removed += try remove("written_at < ?1 ORDER BY written_at", written)
            }
            if let expired = horizon?.expired {
                removed += try remove("expires_at < ?1 AND expires_at IS NOT NULL ORDER BY expires_at", expired)
            }
            noteRemoved(removed)
            guard sessionCount > 0 else { return }
            let unusedSince = retention.sessionIdleTimeout.map { now - $0.components.seconds }
            let rows = try sessions.expire(at: now, unusedSince: unusedSince, limit: Self.expiryBatch)
            ended = noteEnded(rows).count
        }
        return (removed, ended, max(removed, ended) < Self.expiryBatch)
    }

    func saveClockLook(_ time: Int64) throws(SQLiteError) {
        try transaction { () throws(SQLiteError) in
            try connection.execute("UPDATE store SET looked_at = \(time)")
        }
    }

    private func remove(_ condition: String, _ moment: Int64) throws(SQLiteError) -> Int {
        let statement = try SQLiteStatement(
            "DELETE FROM token WHERE slot IN (SELECT slot FROM token WHERE \(condition) LIMIT \(Self.expiryBatch))",
            on: connection
        )
        try statement.bind(moment, at: 1)
        try statement.run()
        return connection.changeCount
    }

    /// Creates or drops the indexes for the retention.
    ///
    /// Each costs every write a little, so it exists only when used.
    ///
    /// After an error they are unchanged.
    func index(for retention: Retention) throws(SQLiteError) {
        guard retention != indexed else { return }
        try transaction { () throws(SQLiteError) in
            try connection.execute(
                retention.afterWritten == nil
                    ? "DROP INDEX IF EXISTS token_by_writing"
                    : "CREATE INDEX IF NOT EXISTS token_by_writing ON token (written_at)")
            try connection.execute(
                retention.afterExpired == nil
                    ? "DROP INDEX IF EXISTS token_by_expiration"
                    : """
                    CREATE INDEX IF NOT EXISTS token_by_expiration ON token (expires_at) WHERE expires_at IS NOT NULL
                    """)
        }
        indexed = retention
    }

    /// Writes and syncs that many bytes to the WAL, and leaves only free pages behind: a disk on which this succeeds
    /// can store tokens.
    ///
    /// A smaller write proves nothing: one that overwrites needs no room, and may succeed on a full disk.
    func tryToWrite(bytes: Int) throws(SQLiteError) {
        try transaction { () throws(SQLiteError) in
            try connection.execute("CREATE TABLE probe (value BLOB)")
            // In pages that are overwritten with zeros when they are freed, so that the WAL gets all of them.
            try connection.execute("INSERT INTO probe VALUES (zeroblob(\(bytes)))")
            try connection.execute("DROP TABLE probe")
        }
        _ = try checkpoint(.passive)
    }

    /// How long `makeRoom` tries nothing after it has failed: each attempt may write many pages while commits wait.
    private static let roomPause = Duration.seconds(1)

    /// Makes room for a commit on a full disk.
    ///
    /// The WAL is checkpointed, so that the next commit overwrites it from its beginning instead of appending to it. This
    /// is impossible if the checkpoint itself needs room because the database has to grow.
    ///
    /// - Returns: Whether there is room now.
    /// - Throws: An error after which this connection can no longer be used.
    func makeRoom() throws(SQLiteError) -> Bool {
        if let lastRoomFailure, .now - lastRoomFailure < Self.roomPause { return false }
        guard walSize > 0 else { return false }
        do throws(SQLiteError) {
            if try checkpoint(.restart, waiting: 100, insists: true) == .complete { return true }
        } catch {
            // After a transient error, above all a full disk, the connection can still be used.
            guard error.isTransient else { throw error }
        }
        lastRoomFailure = .now
        return false
    }

    /// Copies the WAL's content into the database, and then syncs that in the background while commits continue.
    ///
    /// If that is impossible, for example without a free descriptor, or not worthwhile, the next checkpoint does all the work.
    ///
    /// - Parameter whenDone: Called on another thread when the database is synced.
    func prepareCheckpoint(whenDone: @escaping @Sendable () -> Void) throws(SQLiteError) {
        try backgroundSync?.finish()
        // A small database is checkpointed in milliseconds; in the background, most of its pages would have to be
        // written twice.
        guard try usedBytes() >= smallDatabase else { return }
        guard let sync = backgroundSync ?? (try? BackgroundSync(path: connection.path)), sync.hold() else { return }
        backgroundSync = sync
        defer { sync.release() }
        do throws(SQLiteError) {
            // This commit is kept out of the database, because the read has begun before it; it changes nothing.
            try transaction { () throws(SQLiteError) in
                try connection.markRound()
            }
        } catch {
            guard error.isTransient else { throw error }
            return
        }
        _ = try connection.checkpoint(.passive, waiting: 0)
        // The read must end before the other thread uses its connection.
        sync.release()
        sync.synchronize(whenDone: whenDone)
    }

    /// Checkpoints the whole WAL, and truncates or restarts it, unless it is held up by readers.
    ///
    /// - Parameters:
    ///   - mode: What happens to the WAL afterwards.
    ///   - milliseconds: How long readers are waited for.
    ///   - insists: Whether to wait also for readers that keep pages from being copied into the database. Without new
    ///     commits each of them does so until its loop's turn ends; under constant load another one always follows.
    func checkpoint(
        _ mode: SQLiteConnection.CheckpointMode = .truncate, waiting milliseconds: Int32 = 10, insists: Bool = false
    ) throws(SQLiteError) -> SQLiteConnection.CheckpointOutcome {
        try backgroundSync?.finish()
        let end = ContinuousClock.now + .milliseconds(milliseconds)
        // This copies the pages while readers continue; only the last call waits, briefly, for readers.
        while try connection.checkpoint(.passive, waiting: 0) != .complete {
            guard insists, .now < end else { return .heldUp }
            usleep(500)
        }
        return try connection.checkpoint(mode, waiting: milliseconds)
    }
}

/// A copy of a database that is made step by step while the database changes.
///
/// What the source's connection writes between two steps, SQLite also writes to the copy, so that copying never has to
/// start again (sqlite.org/c3ref/backup_finish.html). A complete copy is the database as of the last step.
///
/// It only reads the source: whoever makes it writes what each step returns to a file; see `CopyFile`.
///
/// Used on the source's thread.
@safe final class DatabaseCopy {
    private let source: SQLiteConnection
    private let target: SQLiteConnection
    private let handle: OpaquePointer

    /// A step of the copying: how many pages are left, how many there are, and what is to be written.
    typealias Step = (remaining: Int, total: Int, part: CopyFile.Part)

    init(of source: SQLiteConnection) throws(SQLiteError) {
        target = try SQLiteConnection(path: CopyFile.path, mode: .copy)
        // The copy is not used before it is complete and synced; after a crash an incomplete one is discarded.
        try target.giveUpSafety()
        guard let handle = unsafe sqlite3_backup_init(target.handle, "main", source.handle, "main") else {
            throw target.lastError
        }
        unsafe self.handle = unsafe handle
        self.source = source
    }

    deinit {
        _ = unsafe sqlite3_backup_finish(handle)
    }

    /// Copies some pages.
    func step(pages: Int32) throws(SQLiteError) -> Step {
        let code = unsafe sqlite3_backup_step(handle, pages)
        guard let file = unsafe CopyFile.opened(as: target.file), !file.isFull else {
            let message = "while its disk took nothing, \(CopyFile.limit >> 20) MiB of the store have changed"
            throw SQLiteError(code: SQLITE_FULL, message: message)
        }
        let total = Int(unsafe sqlite3_backup_pagecount(handle))
        switch code {
        case SQLITE_DONE: return (0, total, file.take())
        // Busy and locked: the lock will be released, and another step continues.
        case SQLITE_OK, SQLITE_BUSY, SQLITE_LOCKED:
            return (max(1, Int(unsafe sqlite3_backup_remaining(handle))), total, file.take())
        default: throw SQLiteError(code: code, message: unsafe String(cString: sqlite3_errstr(code)))
        }
    }
}
