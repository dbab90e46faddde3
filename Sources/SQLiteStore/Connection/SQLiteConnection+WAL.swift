import CSQLite
import Glibc
import System
import TokenStore

/// SQLite's index of the WAL.
///
/// The layout of the index is a part of SQLite's file format (sqlite.org/walformat.html, section 2.1).
extension SQLiteConnection {
    /// The WAL as described by its index.
    struct WALIndex: Equatable {
        /// Frames up to the last commit.
        var frames: Int
        /// Frames that are in the database already.
        var movedFrames: Int
        /// Pages of the database after the last commit.
        var pages: Int
        /// The first salt of the round.
        var salt: UInt32

        /// The least length of the WAL in bytes; 0 if it has no valid frame.
        var size: Int { frames == 0 ? 0 : 32 + frames * WALIndex.frameSize }

        static let frameSize = 24 + SQLiteConnection.pageSize
    }

    /// Bytes of the index that are mapped at a time.
    private static let indexRegion: Int32 = 32_768

    /// The index; nil before this connection has first read the WAL.
    var walIndex: WALIndex? {
        var found: WALIndex?
        _ = unsafe withIndex { index in
            guard unsafe index.load(fromByteOffset: 12, as: UInt8.self) != 0 else { return }
            found = WALIndex(
                frames: unsafe Int(index.load(fromByteOffset: 16, as: UInt32.self)),
                movedFrames: unsafe Int(index.load(fromByteOffset: 96, as: UInt32.self)),
                pages: unsafe Int(index.load(fromByteOffset: 20, as: UInt32.self)),
                salt: unsafe index.load(fromByteOffset: 32, as: UInt32.self).bigEndian
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

    /// Makes the next checkpoint move the whole WAL, including what is in the database already.
    ///
    /// After a failed sync of the database it is unknown how much has reached the disk. The index counts the frames
    /// that were moved, synced or not, and SQLite would move only later ones (nBackfill, at byte 96). Readers use the
    /// WAL again, too.
    func forgetMovedPages() throws(SQLiteError) {
        guard let file = unsafe file else { return }
        let methods = unsafe file.pointee.pMethods.pointee
        var code = SQLITE_BUSY
        // A reader may be rebuilding the index, which takes a moment.
        for _ in 0..<100 where code == SQLITE_BUSY {
            code = unsafe methods.xShmLock(file, Self.checkpointLock, 1, SQLITE_SHM_LOCK | SQLITE_SHM_EXCLUSIVE)
            if code == SQLITE_BUSY { usleep(1_000) }
        }
        if code == SQLITE_OK {
            code = unsafe withIndex { unsafe $0.storeBytes(of: 0, toByteOffset: 96, as: UInt32.self) }
            _ = unsafe methods.xShmLock(file, Self.checkpointLock, 1, SQLITE_SHM_UNLOCK | SQLITE_SHM_EXCLUSIVE)
        }
        guard code == SQLITE_OK else {
            throw SQLiteError(code: code, message: "the WAL's index cannot be changed")
        }
    }

    /// The number of the index's lock for checkpoints.
    private static let checkpointLock: Int32 = 1

    /// Truncates the WAL after its last commit.
    func cutWALBehindCommits() throws(SQLiteError) {
        guard let wal, let index = walIndex, try wal.size() > index.size else { return }
        try wal.cut(to: index.size)
    }
}

/// The marks of a store's database and WAL, see `CheckpointMark`.
extension SQLiteConnection {
    /// How far checkpoints have come, as the marks tell it.
    struct Progress {
        /// The number of the last checkpoint that was begun, and that of the last complete one.
        var begun, complete: UInt32
        /// The offset of the mark if it is known to be on the disk, so that no power cut can take it away; otherwise nil.
        var markedEnd: Int?
        /// Whether the WAL gets a mark when it is emptied, as it does while the server runs.
        var marksEnd = false
        /// Whether the next commit may be the first one of a round.
        var startsRound = true
    }

    /// The database's mark, nil if it has none, and how many checkpoints were complete according to its first page.
    func marks() throws(SQLiteError) -> (mark: CheckpointMark?, complete: UInt32) {
        func read(at offset: Int, count: Int) throws(SQLiteError) -> ArraySlice<UInt8> {
            var bytes = [UInt8](repeating: 0, count: count)
            guard readFile(at: offset, into: &bytes) else { throw lastError }
            return bytes[...]
        }
        let (size, page) = (fileSize, try read(at: 0, count: 64))
        guard let complete = CheckpointMark.head(page) else { return (nil, 0) }
        // A power cut may have left a longer file without the new mark at its end. Then the former mark is still in its place.
        for end in [size / Self.pageSize, CheckpointMark.pages(page)].map({ $0 * Self.pageSize }) {
            guard let mark = CheckpointMark(try read(at: end, count: CheckpointMark.length)) else { continue }
            return (mark, complete)
        }
        return (nil, complete)
    }

    /// Makes checkpoints and commits on this connection leave marks from now on.
    func beginMarks() throws(SQLiteError) {
        let (mark, complete) = try marks()
        // After a power cut the disk may have the later number in the first page, and not yet the mark.
        let begun = mark.map { CheckpointMark.includes(complete, $0.checkpoint) ? complete : $0.checkpoint } ?? complete
        progress = Progress(begun: begun, complete: complete)
        if mark == nil { try write(CheckpointMark(checkpoint: begun), pages: 0) }
    }

    /// Writes to the first page how many checkpoints are complete, in the open transaction: the first one of a round.
    func markRound() throws(SQLiteError) {
        guard let progress else { return }
        let version = Int32(bitPattern: progress.complete << 8 | UInt32(CheckpointMark.schemaVersion))
        try execute("PRAGMA user_version = \(version)")
    }

    /// Writes the mark of a checkpoint that begins now, and returns its number; nil if it leaves no marks or has nothing to move.
    func beginCheckpoint() throws(SQLiteError) -> UInt32? {
        guard let progress, let index = walIndex, index.frames > index.movedFrames else { return nil }
        let mark = CheckpointMark(checkpoint: progress.begun &+ 1, salt: index.salt, frames: UInt32(index.frames))
        try write(mark, pages: index.pages)
        self.progress?.begun = mark.checkpoint
        return mark.checkpoint
    }

    /// The mark for the end of the WAL if it is emptied now, after all of its frames were moved into the database.
    var endMark: CheckpointMark? {
        guard let progress, progress.marksEnd, let index = walIndex else { return nil }
        let frames = index.frames > 0 ? UInt32(index.frames) : .max
        return CheckpointMark(checkpoint: progress.complete, salt: index.salt, frames: frames)
    }

    /// Writes a mark after the last of that many pages.
    private func write(_ mark: CheckpointMark, pages: Int) throws(SQLiteError) {
        guard let file = unsafe file else { return }
        let size = fileSize
        let former = size - size % Self.pageSize
        let end = max(former, pages * Self.pageSize)
        // Also at the former end: some programs copy only as many bytes as the file had when they opened it.
        var code = SQLITE_OK
        for place in [former, end] where code == SQLITE_OK {
            code = unsafe mark.bytes.withUnsafeBytes { bytes in
                unsafe file.pointee.pMethods.pointee.xWrite(
                    file, bytes.baseAddress, Int32(bytes.count), sqlite3_int64(place))
            }
        }
        // The checkpoint overwrites the mark at the former end, so the new one must be on the disk before.
        if code == SQLITE_OK && end != progress?.markedEnd { code = synchronizeFile() }
        guard code == SQLITE_OK else {
            throw SQLiteError(code: code, message: unsafe String(cString: sqlite3_errstr(code)))
        }
        progress?.markedEnd = end
    }
}
