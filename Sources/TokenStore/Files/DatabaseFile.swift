internal import Glibc

/// A store's database that nobody has open, and that another one is to replace.
struct DatabaseFile {
    let path: String

    /// Where the other one is made.
    var new: String { path + ".new" }

    /// Removes what an interrupted attempt leaves; without effect once the new file has its final name.
    func discardNew() {
        PrivateFile.discardDatabase(new)
    }

    /// Has the new file take the old one's place; it has to be complete and synced.
    ///
    /// A log that stays behind would be taken for the new file's and damage it. So the old one is moved into its database
    /// first, which is then complete without it, and is removed before the new file comes.
    ///
    /// - Parameter erasing: Overwrites what the old file held.
    func replace(erasing: Bool) throws(StoreError) {
        if PrivateFile.exists(path) {
            try settleLog()
            for suffix in ["-wal", "-shm"] { try PrivateFile.remove(path + suffix) }
            DataDirectory.synchronize(PrivateFile.folder(of: path))
        }
        let old = erasing ? unsafe open(path, O_WRONLY | O_CLOEXEC) : -1
        defer { if old >= 0 { close(old) } }
        try PrivateFile.rename(new, to: path)
        if old >= 0 { PrivateFile.overwrite(old) }
    }

    /// Moves the old database's log into it; a damaged one cannot be read, which may be why it is replaced.
    private func settleLog() throws(StoreError) {
        guard let connection = try? SQLiteConnection(path: path, mode: .readWrite),
            (try? connection.integer("SELECT count(*) FROM sqlite_schema")) != nil
        else { return }
        do throws(SQLiteError) {
            let outcome = try connection.checkpoint(.truncate, waiting: 1_000)
            // Without a log there is nothing to move.
            guard outcome == .complete || PrivateFile.size(path + "-wal") == 0 else {
                throw .damaged("its log is held by another program")
            }
        } catch {
            throw .refused("the log of \(path) cannot be moved into it, and nothing was replaced: \(error)")
        }
    }
}
