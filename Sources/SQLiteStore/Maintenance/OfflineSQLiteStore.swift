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
        _ path: String, keepsSessions: Bool, lacksKeys: Bool, _ progress: (StoreProgress) -> Void
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
            path, keepsSessions: keepsSessions, lacksKeys: lacksKeys, former ?? (0, 0, 0), progress)
        try PrivateFile.synchronize(database.new)
        try database.replace()
        (replacement.bytes, replacement.replacedTokens) = (FileStatus.size(of: database.path), former?.tokens)
        return replacement
    }

    /// How many tokens the store has that is about to be replaced, its version limit, and how many erasures it knows of.
    private typealias Counts = (tokens: Int, versionLimit: Int64, erasures: Int)

    /// Nil if there is no store, or if it cannot be read.
    private func formerCounts() -> Counts? {
        guard FileStatus.size(of: database.path) > 0 else { return nil }
        // The WAL may hold newer counts than the database. If it cannot be read, or is of another state or store, the
        // database's counts are used.
        let isForeign = (try? WALExaminer.fault(beside: database.path)) == .foreignWAL(path: database.path)
        return (isForeign ? nil : counts(.readOnly)) ?? counts(.immutable)
    }

    private func counts(_ mode: SQLiteConnection.Mode) -> Counts? {
        guard let former = try? SQLiteConnection(path: database.path, mode: mode),
            let tokens = try? Schema.counts(of: former).tokens, let versionLimit = try? Schema.versionLimit(of: former)
        else { return nil }
        return (tokens, versionLimit, Schema.erasures(of: former))
    }

    /// Opens the copy of a backup, checks it, decrypts each row, and removes the rows that are not restored.
    ///
    /// A row that does not open stays as it is: the others are worth more than a refusal, and its key may come back.
    private func complete(
        _ path: String, keepsSessions: Bool, lacksKeys: Bool, _ former: Counts, _ progress: (StoreProgress) -> Void
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
        // The rows of erased users, and their row keys.
        var (slots, ended, users): ([Int64], [SessionRow], Set<[UInt8]>) = ([], [], [])
        var replacement = StoreReplacement()
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
            case .session(let row, .success(let opened)):
                guard erasures.find(opened.session.user, writtenAs: TokenVersion(rawValue: row.number)) else { break }
                users.insert(row.userKey)
                // The others go all at once.
                if keepsSessions { ended.append(row) }
            case .token(_, .failure): replacement.unreadable += 1
            case .session(_, .failure): if keepsSessions { replacement.unreadable += 1 }
            }
        }
        progress(StoreProgress(done: total, total: total))
        guard rows.missingKeys.isEmpty || lacksKeys else {
            let numbers = rows.missingKeys.sorted().map(String.init).joined(separator: ", ")
            throw .refused(
                """
                \(path) has tokens that are sealed with keys which the key ring \(options.keyRing.path) does not have (\(numbers)); \
                nothing was replaced. Append their lines from an earlier copy of the key ring or, if these rows may stay as they \
                are until then, give --lacks-keys
                """
            )
        }
        try StoreError.writing { () throws(SQLiteError) in
            try writer.transaction { () throws(SQLiteError) in
                for slot in slots { try writer.connection.execute("DELETE FROM token WHERE slot = \(slot)") }
                writer.noteRemoved(slots.count)
                if keepsSessions {
                    writer.sessionCount = max(0, writer.sessionCount - (try writer.sessions.remove(ended)).count)
                } else {
                    try writer.connection.execute("DELETE FROM session")
                    writer.sessionCount = 0
                }
                // Later writes must get larger versions than all rows of the replaced store, and than all erasures.
                let limit = erasures.reduce(former.versionLimit) { max($0, $1.last?.rawValue ?? 0) }
                try Schema.raiseVersionLimit(limit, in: writer.connection)
                let known = max(former.erasures, Schema.erasures(of: writer.connection))
                let found = erasures.reduce(0) { $0 + $1.count }
                replacement.missingErasures = max(0, known - found)
                if max(known, found) > 0 { try Schema.set(erasures: max(known, found), in: writer.connection) }
            }
        }
        (replacement.tokens, replacement.isSealed) = (writer.tokenCount, options.isSealed)
        replacement.erasedUsers = users.count
        replacement.endedSessions = keepsSessions ? ended.count : rows.sessions
        return replacement
    }

    /// The contents of the files of erasures; empty if no user was ever erased.
    private func erasures() throws(StoreError) -> [Erasures] {
        try ErasuresFile.load(followedByStoreWith: options.keyRing, in: directory.path)
    }
}

extension [Erasures] {
    /// Whether a user was erased after something was written.
    fileprivate func find(_ user: [UInt8], writtenAs version: TokenVersion) -> Bool {
        contains { $0.finds(user, writtenAs: version) }
    }
}
