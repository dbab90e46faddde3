internal import CSQLite
internal import Glibc
internal import TokenStore

/// The writer's maintenance between groups, in small steps: each is a transaction of its own that delays commits only
/// briefly.
extension WriterConnection {
    /// Rows that one step of an expiry removes.
    private static let expiryBatch = 256
    /// Pages that one step gives back to the file system, and the number of free pages that are kept for growth.
    private static let (releaseBatch, keptFreePages) = (256, 1_024)

    /// Removes some expired tokens and sessions, the oldest first.
    ///
    /// - Parameters:
    ///   - retention: The one in force.
    ///   - now: In seconds since 1970.
    ///   - sealing: Opens the sessions that end.
    /// - Returns: How many tokens were removed, and whether nothing is left that has expired.
    func expire(
        _ retention: Retention, at now: Int64, _ sealing: Sealing
    ) throws(SQLiteError) -> (removed: Int, isDone: Bool) {
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
            let sessions = try sessions(sealing)
            let unusedSince = retention.sinceSessionUsed.map { now - $0.components.seconds }
            let rows = try sessions.expire(at: now, unusedSince: unusedSince, limit: Self.expiryBatch)
            ended = noteEnded(rows, sessions).count
        }
        return (removed, max(removed, ended) < Self.expiryBatch)
    }

    /// When the clock was last found right, in seconds since 1970; nil if that was never stored.
    var lastClockLook: Int64? {
        guard let select = try? SQLiteStatement("SELECT looked_at FROM store", on: connection) else { return nil }
        defer { select.reset() }
        return (try? select.step()) == true ? select.optionalInteger(at: 0) : nil
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
        let indexes = [
            ("token_by_writing", "(written_at)", retention.sinceWritten != nil),
            ("token_by_expiration", "(expires_at) WHERE expires_at IS NOT NULL", retention.sinceExpired != nil),
        ]
        var statements: [String] = []
        for (name, rows, isNeeded) in indexes {
            let isThere = try connection.integer("SELECT count(*) FROM sqlite_schema WHERE name = '\(name)'") > 0
            guard isThere != isNeeded else { continue }
            statements.append(isNeeded ? "CREATE INDEX \(name) ON token \(rows)" : "DROP INDEX \(name)")
        }
        if statements.isEmpty { return }
        try transaction(mark: .always) { () throws(SQLiteError) in
            for statement in statements { try connection.execute(statement) }
        }
    }

    /// Gives some free pages back to the file system when there are many.
    ///
    /// - Returns: False when there is nothing more to give back.
    func releasePages() throws(SQLiteError) -> Bool {
        let free = try connection.integer("PRAGMA freelist_count")
        guard free > Self.keptFreePages, free > (try connection.integer("PRAGMA page_count")) / 8 else { return false }
        try transaction(mark: .always) { () throws(SQLiteError) in
            try connection.execute("PRAGMA incremental_vacuum(\(Self.releaseBatch))")
        }
        return true
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
            // A full disk, above all, is no such error.
            guard error.isTransient else { throw error }
        }
        lastRoomFailure = .now
        return false
    }

    /// Begins a read of the WAL's present state, which lasts until `checkpointHeldWAL` or `checkpoint`.
    ///
    /// If that is impossible, for example without a free descriptor, or not worthwhile, the next checkpoint does all
    /// the work. Throws the error of an earlier sync.
    ///
    /// - Returns: Whether the state is held.
    @discardableResult
    func holdWAL() throws(SQLiteError) -> Bool {
        try backgroundSync?.finish()
        // A small database is checkpointed in milliseconds; in the background, most of its pages would have to be
        // written twice.
        guard try usedBytes() >= smallDatabase else { return false }
        try markLastCommit()
        heldFrames = connection.walIndex?.frames ?? 0
        do throws(SQLiteError) {
            if backgroundSync == nil { backgroundSync = try BackgroundSync(path: connection.path) }
            try backgroundSync?.hold()
            return true
        } catch {
            backgroundSync?.release()
            return false
        }
    }

    /// Checkpoints up to the state that is held.
    ///
    /// - Parameters:
    ///   - synchronizes: Whether the database is then synced in the background.
    ///   - whenDone: Called on another thread when it is synced.
    /// - Returns: Bytes of the WAL that are in the database now; nil if no state was held.
    func checkpointHeldWAL(
        synchronizes: Bool, whenDone: @escaping @Sendable () -> Void
    ) throws(SQLiteError) -> Int? {
        guard let backgroundSync, backgroundSync.isHolding else { return nil }
        defer { backgroundSync.release() }
        // It would end at a commit without a mark.
        if !connection.isRead(before: heldFrames) { _ = try connection.checkpoint(.passive, waiting: 0) }
        // The read must end before the other thread uses its connection.
        backgroundSync.release()
        if synchronizes { backgroundSync.synchronize(whenDone: whenDone) }
        return (connection.walIndex?.movedFrames ?? 0) * pageSize
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
        try markLastCommit()
        // A checkpoint of a part would end at a commit without a mark.
        let (end, frames) = (ContinuousClock.now + .milliseconds(milliseconds), connection.walIndex?.frames ?? 0)
        while connection.isRead(before: frames) {
            guard insists, .now < end else { return .heldUp }
            usleep(500)
        }
        // The first call copies the pages while readers continue; only the second waits, briefly, for readers.
        guard try connection.checkpoint(.passive, waiting: 0) == .complete else { return .heldUp }
        return try connection.checkpoint(mode, waiting: milliseconds)
    }
}

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
