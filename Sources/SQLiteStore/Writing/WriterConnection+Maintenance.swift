import Glibc
import System
import TokenStore

/// The writer's maintenance between groups, in small steps: each is a transaction of its own that delays commits only
/// briefly.
extension WriterConnection {
    /// Brings a store of version 1.0 up to date: it needs no indexes that find expired rows, and a place for the state of the walk.
    ///
    /// The pages that this frees hold times and the keys of rows, which are hashes, so they are not overwritten. That way it needs
    /// hardly any room on the disk.
    func upgrade() throws(SQLiteError) {
        try connection.execute("PRAGMA secure_delete = OFF")
        defer { try? connection.execute("PRAGMA secure_delete = ON") }
        try transaction { () throws(SQLiteError) in try connection.execute(Schema.walkTable) }
        // The first complete checkpoint writes a number that makes version 1.0 refuse the store. It has to come before the indexes are
        // dropped: if this process is killed soon, that version would otherwise open the store, and call it damaged without them.
        if connection.progress?.complete == 0 { _ = try checkpoint(.restart, waiting: 100, insists: true) }
        for index in ["token_by_writing", "token_by_expiration", "session_by_expiration", "session_by_use"] {
            do {
                try transaction { () throws(SQLiteError) in try connection.execute("DROP INDEX IF EXISTS \(index)") }
            } catch {
                // A damaged index stays. Most tokens can be stored beside it, as with version 1.0.
                guard error.isNotADatabase else { throw error }
            }
        }
    }

    /// Makes the changes of a step of the walk, and saves its state.
    ///
    /// - Parameters:
    ///   - changes: Rows that were written since they were read stay as they are.
    ///   - deletes: Whether the expired rows are deleted.
    ///   - walk: The state's text.
    /// - Returns: How many tokens were removed.
    func apply(_ changes: WalkChanges, deletes: Bool, walk: String) throws(SQLiteError) -> Int {
        try transaction { () throws(SQLiteError) in
            var removed = 0
            if deletes {
                for (slot, version) in changes.expiredTokens where try table.remove(slot, version) { removed += 1 }
                noteRemoved(removed)
                _ = noteEnded(try sessions.removeUnused(changes.expiredSessions))
            }
            for row in changes.tokens { try table.seal(row) }
            for row in changes.sessions { try sessions.seal(row) }
            try Schema.set(walk: walk, in: connection)
            return removed
        }
    }

    func saveClockLook(_ time: Int64) throws(SQLiteError) {
        try transaction { () throws(SQLiteError) in
            try connection.execute("UPDATE store SET looked_at = \(time)")
        }
    }

    /// Writes and syncs that many bytes to the WAL, and leaves only free pages behind: a disk on which this succeeds
    /// can store tokens.
    ///
    /// A smaller write proves nothing: one that overwrites needs no room, and may succeed on a full disk.
    func tryToWrite(bytes: Int) throws(SQLiteError) {
        try transaction(isProbe: true) { () throws(SQLiteError) in
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
    /// The WAL is checkpointed and truncated. This is impossible if the checkpoint itself needs room because the database has to
    /// grow, and another program has taken what commits leave free for that.
    ///
    /// - Returns: Whether there is room now.
    /// - Throws: An error after which this connection can no longer be used.
    func makeRoom() throws(SQLiteError) -> Bool {
        if let lastRoomFailure, .now - lastRoomFailure < Self.roomPause { return false }
        // Emptied, it still has its head and a mark.
        let least = 2 * SQLiteConnection.pageSize
        guard walSize > 0 || FileStatus.allocatedSize(of: connection.path + "-wal") > least else { return false }
        do {
            if try checkpoint(.truncate, waiting: 100, insists: true) == .complete { return true }
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
        do {
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
    ///   - insists: Whether to wait for readers of earlier states as well, which keep pages from being copied into the
    ///     database. A loop reads one state until its turn ends; while commits continue, there are always such readers.
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
