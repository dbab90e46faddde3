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
                movedFrames: unsafe Int(index.load(fromByteOffset: 96, as: UInt32.self))
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
