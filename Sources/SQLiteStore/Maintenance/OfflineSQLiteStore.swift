import System
import TokenStore

/// A SQLite store that no process has open, so that its database can be replaced.
///
/// The new database is made beside the old one, checked and synced before anything is replaced. A crash leaves one or
/// the other; the next start refuses the new one if the WAL of the old one is still there. The folder is locked
/// meanwhile.
final class OfflineSQLiteStore {
    let directory: DataDirectory
    let database: DatabaseFile
    let options: StoreOptions

    /// - Parameters:
    ///   - directory: The data directory, locked for as long as this lives.
    ///   - options: The options of the server.
    init(in directory: DataDirectory, options: StoreOptions) throws(SQLiteOpenError) {
        database = try DatabaseFile(in: directory.path)
        self.directory = directory
        self.options = options
    }

    // MARK: - Restoring

    /// See `FileStoreProvider`.
    func restore(
        _ path: String, keepsSessions: Bool, _ progress: (StoreProgress) -> Void
    ) throws(StoreError) -> StoreReplacement {
        guard ![database.path, database.new].contains(where: { FileIdentity.areSame(path, $0) }) else {
            throw .refused("\(path) is a file of the store itself")
        }
        try BackupFile.check(path, BackupFile.consequence)
        defer { database.discardNew() }
        database.discardNew()
        try PrivateFile.copy(path, to: database.new)
        let former = formerCounts()
        var replacement = try complete(
            path, keepsSessions: keepsSessions, versionLimit: former?.versionLimit ?? 0, progress)
        try PrivateFile.synchronize(database.new)
        try database.replace()
        (replacement.bytes, replacement.replacedTokens) = (FileStatus.size(of: database.path), former?.tokens)
        return replacement
    }

    /// How many tokens the store has that is about to be replaced, and its version limit; nil if there is no store, or
    /// if it cannot be read.
    private func formerCounts() -> (tokens: Int, versionLimit: Int64)? {
        guard FileStatus.size(of: database.path) > 0 else { return nil }
        // The WAL may hold newer counts than the database. If it cannot be read, or is of another state or store, the
        // database's counts are used.
        let isForeign = (try? WALExaminer.fault(beside: database.path)) == .foreignWAL(path: database.path)
        return (isForeign ? nil : counts(.readOnly)) ?? counts(.immutable)
    }

    private func counts(_ mode: SQLiteConnection.Mode) -> (tokens: Int, versionLimit: Int64)? {
        guard let former = try? SQLiteConnection(path: database.path, mode: mode),
            let tokens = try? Schema.counts(of: former).tokens, let versionLimit = try? Schema.versionLimit(of: former)
        else { return nil }
        return (tokens, versionLimit)
    }

    /// Opens the copy of a backup, checks it, decrypts each row, and removes the rows that are not restored.
    ///
    /// - Parameter versionLimit: The version limit of the replaced store; 0 if there was none.
    private func complete(
        _ path: String, keepsSessions: Bool, versionLimit: Int64, _ progress: (StoreProgress) -> Void
    ) throws(StoreError) -> StoreReplacement {
        let opened: StoreOpener.Opened
        do throws(SQLiteOpenError) {
            // Errors name the path that the operator knows, here and below.
            opened = try StoreOpener(directory: directory.path, database: database.new, options: options).openCopy()
        } catch {
            throw BackupFile.refusal(error, of: path, copiedTo: database.new)
        }
        let writer = opened.writer
        do throws(SQLiteError) {
            try BackupFile.checkStructure(writer.connection)
        } catch {
            throw .refused("\(path) is damaged: \(error)\(BackupFile.consequence)")
        }
        let erasures = try erasures()
        // The rows that are not restored, and the row keys of erased users.
        var (slots, ended, users): ([Int64], [SessionRow], Set<[UInt8]>) = ([], [], [])
        var unreadable = 0
        let total = writer.tokenCount
        let rows = try StoreError.reading { () throws(SQLiteError) in
            try OpenedRows(writer.connection, opened.sealing)
        }
        while let row = try StoreError.reading({ () throws(SQLiteError) in try rows.next() }) {
            switch row {
            case .token(let row, .success(let token)):
                if rows.tokens.isMultiple(of: 1_000) {
                    progress(StoreProgress(done: min(rows.tokens, total), total: total))
                }
                if erasures.find(token.id, writtenAs: row.version) {
                    slots.append(row.slot)
                    users.insert(row.key)
                }
            case .token: unreadable += 1
            case .session(let row, .success(let opened)):
                let isErased = erasures.find(opened.session.user, writtenAs: TokenVersion(rawValue: row.number))
                if isErased { users.insert(row.userKey) }
                if isErased || !keepsSessions { ended.append(row) }
            // A session that does not open is of no use.
            case .session(let row, .failure): ended.append(row)
            }
        }
        progress(StoreProgress(done: total, total: total))
        guard unreadable == 0 else {
            throw .refused(
                """
                \(path) has \(unreadable) \(unreadable == 1 ? "row" : "rows") that the key ring \(options.keyRing.path) does \
                not open; nothing was replaced. token-cache verify FILE names the missing keys: append their lines from an \
                earlier copy of the key ring
                """
            )
        }
        try StoreError.writing { () throws(SQLiteError) in
            try writer.transaction { () throws(SQLiteError) in
                for slot in slots { try writer.connection.execute("DELETE FROM token WHERE slot = \(slot)") }
                writer.noteRemoved(slots.count)
                writer.sessionCount = max(0, writer.sessionCount - (try writer.sessions.remove(ended)).count)
                // Later writes must get larger versions than all rows of the replaced store, and than all erasures.
                let limit = erasures.reduce(versionLimit) { max($0, $1.last?.rawValue ?? 0) }
                try Schema.raiseVersionLimit(limit, in: writer.connection)
            }
        }
        var replacement = StoreReplacement()
        (replacement.tokens, replacement.isSealed) = (writer.tokenCount, options.isSealed)
        (replacement.erasedUsers, replacement.endedSessions) = (users.count, ended.count)
        return replacement
    }

    /// The contents of the files of erasures; empty if no user was ever erased.
    private func erasures() throws(StoreError) -> [Erasures] {
        var erasures: [Erasures] = []
        for file in ErasuresFile.followed(byStoreWith: options.keyRing, in: directory.path) {
            if let found = try file.load() { erasures.append(found) }
        }
        return erasures
    }
}

extension [Erasures] {
    /// Whether a user was erased after something was written.
    fileprivate func find(_ user: [UInt8], writtenAs version: TokenVersion) -> Bool {
        contains { $0.finds(user, writtenAs: version) }
    }
}
