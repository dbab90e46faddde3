internal import CSQLite
internal import Glibc
internal import System
internal import TokenStore

/// The files of a store's database and WAL, and the new file that replaces them.
struct DatabaseFile {
    /// With symbolic links resolved, so that new files lie beside the database itself.
    let path: String

    init(path: String) {
        self.path = Path.resolved(path)
    }

    /// The path of the new file until it replaces the database.
    var new: String { path + ".new" }

    /// The suffixes of files beside the database that exist only while it is replaced or its WAL is copied.
    static let temporarySuffixes =
        ["-wal" + DamagedWALCopies.partialSuffix]
        + ["", "-wal", "-shm", "-journal"].map { ".new" + $0 }

    /// Removes the leftovers of an interrupted attempt; has no effect once the new file has its final name.
    func discardNew() {
        for suffix in Self.temporarySuffixes { _ = unsafe unlink(path + suffix) }
    }

    /// Replaces the database by the new file, which must be complete and synced; no process may have the database open.
    ///
    /// A remaining WAL would keep the new file from being opened. So it is checkpointed into the old database, which is then
    /// complete, and removed before the rename.
    ///
    /// Goes on if the old database cannot be read, which may be the reason to replace it.
    func replace() throws(StoreError) {
        if FileStatus.exists(path) {
            do throws(SQLiteError) {
                try settleReadableWAL()
            } catch {
                throw .refused("the WAL of \(path) cannot be moved into it, and nothing was replaced: \(error)")
            }
        }
        // Also if the database itself was moved away.
        for suffix in ["-wal", "-shm", "-journal"] { try PrivateFile.remove(path + suffix) }
        try PrivateFile.synchronizeFolder(of: path)
        try PrivateFile.rename(new, to: path)
        CheckMark(of: path).remove()
    }

    /// Moves the old database's WAL into it, unless one of them is damaged.
    private func settleReadableWAL() throws(SQLiteError) {
        do throws(SQLiteError) {
            try settleWAL()
        } catch {
            guard !error.isTransient, !error.isRefusal else { throw error }
        }
    }

    private func settleWAL() throws(SQLiteError) {
        // It would damage a database that it does not belong to, and which stays if a crash follows.
        if try WALExaminer.examine(path + "-wal", of: path) == .foreign { return }
        let connection = try SQLiteConnection(path: path, mode: .readWrite)
        _ = try connection.integer("SELECT count(*) FROM sqlite_schema")
        try rewriteWAL()
        let outcome = try connection.checkpoint(.truncate, waiting: 1_000)
        // Without a WAL there is nothing to move.
        guard outcome == .complete || FileStatus.size(of: path + "-wal") == 0 else {
            throw SQLiteError(code: SQLITE_BUSY, message: "its WAL is held by another program", sql: "checkpoint")
        }
    }

    /// Rewrites the WAL in place and syncs it; see `StoreOpener.settle`.
    func rewriteWAL() throws(SQLiteError) {
        do throws(SystemError) {
            let descriptor = try FileDescriptor(opening: path + "-wal", O_RDWR | O_NOFOLLOW)
            var offset = 0
            while true {
                let bytes = try BlockingIO.read(from: descriptor.number, at: offset, count: 1 << 20)
                if bytes.isEmpty { break }
                try BlockingIO.write(bytes[...], to: descriptor.number, at: offset)
                offset += bytes.count
            }
            if offset > 0 { try BlockingIO.synchronizeData(descriptor.number) }
        } catch {
            // Without a WAL there is nothing to rewrite.
            guard error.call == "open" && error.code == ENOENT else {
                throw .system(error.call, of: "WAL", code: error.code)
            }
        }
    }
}
