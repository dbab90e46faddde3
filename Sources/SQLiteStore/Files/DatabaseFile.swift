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

    /// Where the files are created in which rows are sorted; each is unlinked at once.
    var rows: String { path + Self.rowsSuffix }

    private static let rowsSuffix = ".new.rows"

    /// The suffixes of files beside the database that exist only while it is replaced or its WAL is copied.
    static let temporarySuffixes =
        ["-wal" + DamagedWALCopies.partialSuffix, rowsSuffix]
        + ["", "-wal", "-shm", "-journal"].map { ".new" + $0 }

    /// Removes the leftovers of an interrupted attempt; has no effect once the new file has its final name.
    ///
    /// - Parameter erasing: Overwrites what the new file held.
    func discardNew(erasing: Bool = false) {
        let file = erasing ? try? FileDescriptor(opening: new, O_WRONLY | O_NOFOLLOW) : nil
        for suffix in Self.temporarySuffixes { _ = unsafe unlink(path + suffix) }
        if let file { PrivateFile.overwrite(file.number) }
    }

    /// Replaces the database by the new file, which must be complete and synced; no process may have the database open.
    ///
    /// A remaining WAL would keep the new file from being opened. So it is checkpointed into the old database, which is then
    /// complete, and removed before the rename.
    ///
    /// - Parameters:
    ///   - erasing: Overwrites what the old file held.
    ///   - mayBeDamaged: Continues if the old database cannot be read, which may be the reason to replace it.
    func replace(erasing: Bool = false, mayBeDamaged: Bool = false) throws(StoreError) {
        if FileStatus.exists(path) {
            do throws(SQLiteError) {
                try settleWAL(mayBeDamaged: mayBeDamaged)
            } catch {
                throw .refused("the WAL of \(path) cannot be moved into it, and nothing was replaced: \(error)")
            }
        }
        // Also if the database itself was moved away.
        for suffix in ["-wal", "-shm", "-journal"] { try PrivateFile.remove(path + suffix) }
        try PrivateFile.synchronizeFolder(of: path)
        let old = erasing ? retryingInterrupts { unsafe open(path, O_WRONLY | O_CLOEXEC) } : -1
        defer { if old >= 0 { close(old) } }
        try PrivateFile.rename(new, to: path)
        if old >= 0 { PrivateFile.overwrite(old) }
        CheckMark(of: path).remove()
    }

    /// Moves the old database's WAL into it.
    private func settleWAL(mayBeDamaged: Bool) throws(SQLiteError) {
        do throws(SQLiteError) {
            try settleWAL()
        } catch {
            guard mayBeDamaged, !error.isTransient, !error.isRefusal else { throw error }
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
