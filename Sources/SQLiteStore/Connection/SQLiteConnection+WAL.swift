internal import CSQLite
internal import Glibc
internal import System
internal import TokenStore

/// SQLite's index of the WAL, and repairs for when the two disagree.
///
/// The layout of the index is a part of SQLite's file format (sqlite.org/walformat.html, section 2.1).
extension SQLiteConnection {
    /// The WAL as described by its index.
    struct WALIndex: Equatable {
        /// Frames up to the last commit.
        var frames: Int
        /// Frames that are in the database already.
        var movedFrames: Int
        var pageSize: Int
        /// Pages of the database as of the last commit; 0 if the WAL has none.
        var databasePages: Int

        /// The least length of the WAL in bytes; 0 if it has no valid frame.
        var size: Int { frames == 0 ? 0 : WALIndex.headSize + frames * frameSize }

        var databaseSize: Int? { databasePages == 0 ? nil : databasePages * pageSize }

        var frameSize: Int { 24 + pageSize }

        static let headSize = 32
    }

    /// Bytes of the index that are mapped at a time.
    private static let indexRegion: Int32 = 32_768

    /// The index; nil before this connection has first read the WAL.
    var walIndex: WALIndex? {
        var found: WALIndex?
        _ = unsafe withIndex { index in
            guard unsafe index.load(fromByteOffset: 12, as: UInt8.self) != 0 else { return }
            let pageSize = unsafe Int(index.load(fromByteOffset: 14, as: UInt16.self))
            found = WALIndex(
                frames: unsafe Int(index.load(fromByteOffset: 16, as: UInt32.self)),
                movedFrames: unsafe Int(index.load(fromByteOffset: 96, as: UInt32.self)),
                // 1 stands for 65,536, which does not fit.
                pageSize: pageSize == 1 ? 65_536 : pageSize,
                databasePages: unsafe Int(index.load(fromByteOffset: 20, as: UInt32.self))
            )
        }
        return found
    }

    /// Calls `body` with the beginning of the index; returns SQLite's result code.
    private func withIndex(_ body: (UnsafeMutableRawPointer) -> Void) -> Int32 {
        guard let file = unsafe file else { return SQLITE_OK }
        var index: UnsafeMutableRawPointer?
        let code = unsafe file.pointee.pMethods.pointee.xShmMap(file, 0, Self.indexRegion, 0, &index)
        if let index = unsafe index { unsafe body(index) }
        return code
    }

    /// Changes the index, under SQLite's locks.
    ///
    /// - Parameters:
    ///   - locks: Numbers of SQLite's locks: 0 for writing, 1 for checkpoints, 2 for recovery.
    ///   - body: What to change.
    private func changeIndex(
        holding locks: ClosedRange<Int32>, _ body: (UnsafeMutableRawPointer) -> Void
    ) throws(SQLiteError) {
        guard let file = unsafe file else { return }
        let methods = unsafe file.pointee.pMethods.pointee
        let count = Int32(locks.count)
        var code = SQLITE_BUSY
        // A reader may be rebuilding the index, which takes a moment.
        for _ in 0..<100 where code == SQLITE_BUSY {
            code = unsafe methods.xShmLock(file, locks.lowerBound, count, SQLITE_SHM_LOCK | SQLITE_SHM_EXCLUSIVE)
            if code == SQLITE_BUSY { usleep(1_000) }
        }
        if code == SQLITE_OK {
            code = unsafe withIndex(body)
            _ = unsafe methods.xShmLock(file, locks.lowerBound, count, SQLITE_SHM_UNLOCK | SQLITE_SHM_EXCLUSIVE)
        }
        guard code == SQLITE_OK else {
            throw SQLiteError(code: code, message: "the WAL's index cannot be changed", sql: "checkpoint")
        }
    }

    /// Makes the next checkpoint move the whole WAL, including what is in the database already.
    ///
    /// After a failed sync of the database it is unknown how much has reached the disk. The index counts the frames
    /// that were moved, synced or not, and SQLite would move only later ones (nBackfill, at byte 96). Readers look into
    /// the WAL again, too.
    func forgetMovedPages() throws(SQLiteError) {
        try unsafe changeIndex(holding: 1...1) { unsafe $0.storeBytes(of: 0, toByteOffset: 96, as: UInt32.self) }
    }

    /// Whether a connection reads a state before a frame, so that a checkpoint would end there.
    ///
    /// Such a connection holds one of the locks 4 to 7 of the index, for the frame that is stated from byte 104 on.
    ///
    /// - Parameter frame: The last frame of a commit.
    func isRead(before frame: Int) -> Bool {
        guard let file = unsafe file else { return false }
        var frames: [Int] = []
        _ = unsafe withIndex { index in
            frames = (0..<4).map { unsafe Int(index.load(fromByteOffset: 104 + 4 * $0, as: UInt32.self)) }
        }
        let methods = unsafe file.pointee.pMethods.pointee
        return zip(frames, 4...).contains { (mark, lock: Int32) in
            guard mark < frame else { return false }
            let code = unsafe methods.xShmLock(file, lock, 1, SQLITE_SHM_LOCK | SQLITE_SHM_EXCLUSIVE)
            if code == SQLITE_OK {
                _ = unsafe methods.xShmLock(file, lock, 1, SQLITE_SHM_UNLOCK | SQLITE_SHM_EXCLUSIVE)
            }
            return code != SQLITE_OK
        }
    }

    /// Truncates the WAL after its last commit.
    func cutWALBehindCommits() throws(SQLiteError) {
        guard let wal, let index = walIndex, try wal.size() > index.size else { return }
        try wal.cut(to: index.size)
    }

    /// Makes the index and the WAL agree after the WAL was removed or cut.
    ///
    /// The database must be opened again afterwards. A removed WAL is still open here, and is written to its path
    /// again. What is left of a WAL that was cut is kept, unless the database has later frames already.
    ///
    /// - Parameters:
    ///   - path: Where the WAL belongs.
    ///   - wasRemoved: Whether the path no longer leads to the WAL that is open here.
    func repairWAL(_ path: String, wasRemoved: Bool) throws(SQLiteError) -> WALLoss {
        guard let wal, let index = walIndex else { return .commits }
        let size = try wal.size()
        let wasCut = size < index.size
        var (kept, loss) = (index.size, WALLoss.none)
        if wasCut {
            let frames = max(0, size - WALIndex.headSize) / index.frameSize
            let isOlder = frames < max(1, index.movedFrames)
            kept = isOlder ? 0 : WALIndex.headSize + frames * index.frameSize
            // A checkpoint skips a page that a later frame has again; without that frame the page in the database is
            // too old.
            loss = isOlder && index.movedFrames > 0 && index.movedFrames < index.frames ? .pages : .commits
            try wal.cut(to: kept)
        }
        if wasRemoved { try wal.copy(kept, to: path) }
        if wasCut { try forgetIndex() }
        return loss
    }

    /// Clears the index's header, so that the next reader rebuilds the index from the WAL.
    private func forgetIndex() throws(SQLiteError) {
        try unsafe changeIndex(holding: 0...2) { index in
            for offset in stride(from: 0, to: 96, by: 8) {
                unsafe index.storeBytes(of: 0, toByteOffset: offset, as: UInt64.self)
            }
        }
    }

    /// Truncates the removed WAL that is open here, once its copy was restored and checkpointed: connections that still
    /// have it open would otherwise read its pages by the new WAL's index.
    func emptyWAL() {
        try? wal?.cut(to: 0)
    }

    /// Discards the WAL and its index if the index, kept by another connection, describes more than is left of the WAL.
    ///
    /// To be called before this connection reads anything.
    ///
    /// - Parameter path: The WAL's.
    /// - Returns: What is lost; nil if the two agree.
    func forgetLostWAL(_ path: String) throws(SQLiteError) -> WALLoss? {
        try withKeptIndex { (index) throws(SQLiteError) in
            guard FileStatus.size(of: path) < index.size else { return nil }
            guard unsafe truncate(path, 0) == 0 || errno == ENOENT else { throw .system("cut", of: "WAL") }
            try forgetIndex()
            return index.movedFrames == index.frames ? WALLoss.none : .pages
        }
    }

    /// Whether another connection keeps an index with this frame: SQLite then uses the frame without checking its
    /// checksum.
    ///
    /// To be called before this connection reads anything.
    func isInKeptIndex(frame: Int) throws(SQLiteError) -> Bool {
        try withKeptIndex { (index) throws(SQLiteError) in frame <= index.frames } ?? false
    }

    /// Calls `body` with the index that another connection keeps, before this one has read anything; nil if there is
    /// none.
    private func withKeptIndex<Result>(
        _ body: (WALIndex) throws(SQLiteError) -> Result?
    ) throws(SQLiteError) -> Result? {
        guard let file = unsafe file else { return nil }
        let methods = unsafe file.pointee.pMethods.pointee
        // Without this lock, which the first read takes otherwise, SQLite would make the index a file.
        let code = unsafe methods.xLock(file, SQLITE_LOCK_SHARED)
        guard code == SQLITE_OK else {
            throw SQLiteError(code: code, message: unsafe String(cString: sqlite3_errstr(code)), sql: "lock")
        }
        defer {
            // A connection that never reads the WAL does not unmap the index when it is closed. The index would then never be
            // freed, and later connections would use it even if the WAL was replaced meanwhile.
            _ = unsafe (methods.xShmUnmap(file, 0), methods.xUnlock(file, SQLITE_LOCK_NONE))
        }
        guard let index = walIndex else { return nil }
        return try body(index)
    }

    /// What a lost part of the WAL costs.
    enum WALLoss {
        case none
        /// The last commits; the database is in the state before them.
        case commits
        /// The last commits, and consistency: some pages are in the state before them, others in the state after them.
        case pages
    }
}
