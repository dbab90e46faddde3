internal import CSQLite
internal import Glibc
internal import System
internal import TokenStore

/// What SQLite's index says of the WAL, and the repairs for when the two no longer agree.
///
/// The layout of the index is a part of SQLite's file format (sqlite.org/walformat.html, section 2.1).
extension SQLiteConnection {
    /// What the index says of the WAL.
    struct WALIndex: Equatable {
        /// Up to the last commit.
        var frames: Int
        /// Those that are in the database already.
        var movedFrames: Int
        var pageSize: Int
        /// Pages of the database as of the last commit; 0 when none has been made or found in the WAL.
        var databasePages: Int

        /// Bytes that the WAL has at least; 0 when nothing in it counts.
        var size: Int { frames == 0 ? 0 : WALIndex.headSize + frames * frameSize }

        var databaseSize: Int? { databasePages == 0 ? nil : databasePages * pageSize }

        var frameSize: Int { 24 + pageSize }

        static let headSize = 32
    }

    /// Bytes of the index that are mapped at a time.
    private static let indexRegion: Int32 = 32_768

    /// The index; nil before the WAL was read for the first time.
    var walIndex: WALIndex? {
        var found: WALIndex?
        _ = unsafe withIndex { index in
            guard unsafe index.load(fromByteOffset: 12, as: UInt8.self) != 0 else { return }
            let pageSize = unsafe Int(index.load(fromByteOffset: 14, as: UInt16.self))
            found = WALIndex(
                frames: unsafe Int(index.load(fromByteOffset: 16, as: UInt32.self)),
                movedFrames: unsafe Int(index.load(fromByteOffset: 96, as: UInt32.self)),
                // 65,536 does not fit.
                pageSize: pageSize == 1 ? 65_536 : pageSize,
                databasePages: unsafe Int(index.load(fromByteOffset: 20, as: UInt32.self))
            )
        }
        return found
    }

    /// Lends the beginning of the index; returns SQLite's result code.
    private func withIndex(_ body: (UnsafeMutableRawPointer) -> Void) -> Int32 {
        guard let file = unsafe file else { return SQLITE_OK }
        var index: UnsafeMutableRawPointer?
        let code = unsafe file.pointee.pMethods.pointee.xShmMap(file, 0, Self.indexRegion, 0, &index)
        if let index = unsafe index { unsafe body(index) }
        return code
    }

    /// Changes the index while nobody else does.
    ///
    /// - Parameters:
    ///   - locks: Of those that SQLite has for it: 0 is a writer's, 1 a checkpoint's, 2 a recovery's.
    ///   - body: What to change.
    private func changeIndex(
        holding locks: ClosedRange<Int32>, _ body: (UnsafeMutableRawPointer) -> Void
    ) throws(SQLiteError) {
        guard let file = unsafe file else { return }
        let methods = unsafe file.pointee.pMethods.pointee
        let count = Int32(locks.count)
        var code = SQLITE_BUSY
        // A reader that has found no valid index makes one, which takes a moment.
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

    /// Has the next checkpoint move all of the WAL, also what is in the database already.
    ///
    /// After a sync of the database has failed nobody knows how much of that has reached the disk. SQLite has noted in the
    /// WAL's index how many frames were moved, synced or not, and would move only later ones (nBackfill, at byte 96).
    /// Readers, too, look into the WAL again.
    func forgetMovedPages() throws(SQLiteError) {
        try unsafe changeIndex(holding: 1...1) { unsafe $0.storeBytes(of: 0, toByteOffset: 96, as: UInt32.self) }
    }

    /// Cuts off what is in the WAL behind the last commit.
    func cutWALBehindCommits() throws(SQLiteError) {
        guard let wal, let index = walIndex, try wal.size() > index.size else { return }
        try wal.cut(to: index.size)
    }

    /// Makes the index and the WAL agree again after the WAL was removed or cut.
    ///
    /// Afterwards the database has to be opened anew before it is used.
    /// A WAL that was removed is still open here, and is written to its path again. Of one that was cut the rest is kept,
    /// unless later frames than that are in the database already.
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
            // A checkpoint leaves out a page that a later frame has once more; with that frame lost, the page is too old.
            loss = isOlder && index.movedFrames > 0 && index.movedFrames < index.frames ? .pages : .commits
            try wal.cut(to: kept)
        }
        if wasRemoved { try wal.copy(kept, to: path) }
        if wasCut { try forgetIndex() }
        return loss
    }

    /// Clears the index's header, so that the next connection that reads makes the index anew from the WAL.
    private func forgetIndex() throws(SQLiteError) {
        try unsafe changeIndex(holding: 0...2) { index in
            for offset in stride(from: 0, to: 96, by: 8) {
                unsafe index.storeBytes(of: 0, toByteOffset: offset, as: UInt64.self)
            }
        }
    }

    /// Empties the removed WAL that is open here, after its copy was put back and moved into the database: connections that
    /// still have it open would read pages from it by the index of the new one.
    func emptyWAL() {
        try? wal?.cut(to: 0)
    }

    /// Discards the WAL and its index where the index, which another connection may have kept, has more than is left of the
    /// WAL.
    ///
    /// To be called before this connection reads anything.
    ///
    /// - Parameter path: The WAL's.
    /// - Returns: What is lost; nil when the two agree.
    func forgetLostWAL(_ path: String) throws(SQLiteError) -> WALLoss? {
        try withKeptIndex { (index) throws(SQLiteError) in
            guard FileStatus.size(of: path) < index.size else { return nil }
            guard unsafe truncate(path, 0) == 0 || errno == ENOENT else { throw .system("cut", of: "WAL") }
            try forgetIndex()
            return index.movedFrames == index.frames ? WALLoss.none : .pages
        }
    }

    /// Whether another connection has kept an index that has a frame: then SQLite uses the frame without looking at its
    /// checksum.
    ///
    /// To be called before this connection reads anything.
    func isInKeptIndex(frame: Int) throws(SQLiteError) -> Bool {
        try withKeptIndex { (index) throws(SQLiteError) in frame <= index.frames } ?? false
    }

    /// Lends the index that another connection has kept, before this one has read anything; nil when there is none.
    private func withKeptIndex<Result>(
        _ body: (WALIndex) throws(SQLiteError) -> Result?
    ) throws(SQLiteError) -> Result? {
        guard let file = unsafe file else { return nil }
        let methods = unsafe file.pointee.pMethods.pointee
        // Without the lock, which the first read takes otherwise, the index would be a file.
        let code = unsafe methods.xLock(file, SQLITE_LOCK_SHARED)
        guard code == SQLITE_OK else {
            throw SQLiteError(code: code, message: unsafe String(cString: sqlite3_errstr(code)), sql: "lock")
        }
        defer { _ = unsafe methods.xUnlock(file, SQLITE_LOCK_NONE) }
        guard let index = walIndex else { return nil }
        return try body(index)
    }

    /// What is lost with a part of the WAL.
    enum WALLoss {
        case none
        /// The last commits; the database is as it was before them.
        case commits
        /// Some pages of the database are as they were before these commits, and some as they were after them.
        case pages
    }
}
