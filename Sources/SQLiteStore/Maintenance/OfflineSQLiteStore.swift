internal import Cryptography
internal import Glibc
internal import System
package import TokenStore

/// A SQLite store that no process has open, so that its database can be replaced.
///
/// The new database is made beside the old one, checked and synced before anything is replaced; a crash leaves the one or
/// the other, whole. The folder is locked meanwhile.
package final class OfflineSQLiteStore: OfflineStore {
    let directory: DataDirectory
    let database: DatabaseFile
    let options: StoreOptions
    let report: @Sendable (StoreEvent) -> Void

    /// - Parameters:
    ///   - directory: The data directory, locked for as long as this lives.
    ///   - options: The options of the server.
    ///   - report: Called with what operators should know.
    package init(
        in directory: DataDirectory, options: StoreOptions, report: @escaping @Sendable (StoreEvent) -> Void
    ) throws(SQLiteOpenError) {
        database = try DatabaseFile(in: directory.path)
        self.directory = directory
        self.options = options
        self.report = report
    }

    // MARK: - Restoring

    package func restore(
        _ path: String, keepsSessions: Bool, _ progress: (StoreProgress) -> Void
    ) throws(StoreError) -> StoreReplacement {
        defer { database.discardNew() }
        guard !FileIdentity.areSame(path, database.path) else { throw .refused("\(path) is the store itself") }
        try BackupFile.check(path, Self.consequence)
        database.discardNew()
        try PrivateFile.copy(path, to: database.new)
        let left = try check(path, keepsSessions: keepsSessions, progress)
        let former = formerCounts()
        if let former { try keep(former.versionLimit) }
        try PrivateFile.synchronize(database.new)
        try database.replace()
        return StoreReplacement(
            tokens: left.tokens, bytes: FileStatus.size(of: database.path), isSealed: options.isSealed,
            erasedUsers: left.erasedUsers, endedSessions: left.endedSessions,
            keyNumbers: options.isSealed ? left.keyNumbers.sorted() : nil, replacedTokens: former?.tokens)
    }

    /// The tokens of the store that is there before the restore, and the limit of their versions; nil if there is none, or if it
    /// cannot be read.
    private func formerCounts() -> (tokens: Int, versionLimit: Int64)? {
        guard FileStatus.size(of: database.path) > 0 else { return nil }
        // The WAL may hold newer counts than the database. If it cannot be read, or is of another state or store, those of the
        // database have to do.
        let finding = try? WALExaminer.examine(database.path + "-wal", of: database.path)
        return (finding == .foreign ? nil : counts(.readOnly)) ?? counts(.immutable)
    }

    private func counts(_ mode: SQLiteConnection.Mode) -> (tokens: Int, versionLimit: Int64)? {
        guard let former = try? SQLiteConnection(path: database.path, mode: mode),
            let tokens = try? former.integer("SELECT tokens FROM store"),
            let versionLimit = try? Schema.versionLimit(of: former)
        else { return nil }
        // A manipulated file may hold any number of tokens.
        return (max(0, tokens), versionLimit)
    }

    /// Raises the limit of the backup's versions to that of the replaced store.
    private func keep(_ versionLimit: Int64) throws(StoreError) {
        do throws(SQLiteError) {
            let copy = try SQLiteConnection(path: database.new, mode: .readWrite)
            try copy.giveUpSafety()
            try Schema.raiseVersionLimit(versionLimit, in: copy)
        } catch {
            throw .write(StoreFault(error))
        }
    }

    /// Checks the copy of a backup before it is opened for writing.
    private func examine(_ path: String) throws(StoreError) {
        let connection: SQLiteConnection
        do throws(SQLiteOpenError) {
            connection = try Schema.opening(database.new) { () throws(SQLiteError) in
                try SQLiteConnection(path: database.new, mode: .readWrite)
            }
            _ = try Schema.check(connection, path: database.new)
        } catch {
            throw refusal(of: path, error)
        }
        do throws(SQLiteError) {
            try connection.checkIntegrity()
        } catch {
            throw .refused("\(path) is damaged: \(error)")
        }
    }

    /// Opens the copy of a backup, decrypts each row, and removes what does not come back.
    private func check(
        _ path: String, keepsSessions: Bool, _ progress: (StoreProgress) -> Void
    ) throws(StoreError) -> Remains {
        try examine(path)
        let opened: StoreOpener.Opened
        do throws(SQLiteOpenError) {
            // Reported under the path that the operator knows, here and below.
            opened = try StoreOpener(
                directory: directory.path, database: database.new, options: options, report: report
            ).openCopy()
        } catch {
            throw refusal(of: path, error)
        }
        let sealing = Sealing(opened.keys)
        var erased = try ErasedRows(ErasuresFile.followed(byStoreWith: options.keyRing, in: directory.path))
        var unreadable = 0
        var keyNumbers: Set<Int> = []
        try forEachRow(
            of: opened.writer.connection, sealing: sealing, total: opened.writer.tokenCount, progress
        ) { (token, row) in
            keyNumbers.insert(row.keyNumber)
            switch token {
            case .success(let token): erased.note(token, row)
            case .failure: unreadable += 1
            }
        }
        guard unreadable == 0 else {
            throw .refused(
                """
                \(path) has \(unreadable) \(unreadable == 1 ? "row" : "rows") that the key ring \(options.keyRing.path) does \
                not open; nothing was replaced. token-cache verify FILE names the missing keys: append their lines from an \
                earlier copy of the key ring
                """
            )
        }
        var left = try remove(erased, from: opened.writer, sealing, keepsSessions: keepsSessions)
        left.keyNumbers = keyNumbers
        return left
    }

    static let consequence = "; nothing was replaced"

    /// Rephrases errors for the restore of a backup.
    private func refusal(of path: String, _ error: SQLiteOpenError) -> StoreError {
        switch error {
        case .notADatabase(_, let error): .refused("\(path) is damaged (\(error)); nothing was replaced")
        case .foreign: BackupFile.isNone(path, Self.consequence)
        case .database(_, let error):
            .refused("the copy of \(path) in \(directory.path) cannot be opened: \(error); nothing was replaced")
        default: .refused("\(error)".replacing(database.new, with: path))
        }
    }

    // MARK: - Rows and files

    func forEachRow(
        of connection: SQLiteConnection, sealing: Sealing, total: Int, _ progress: (StoreProgress) -> Void,
        _ body: (Result<Token, SealingError>, StoredRow) throws(StoreError) -> Void
    ) throws(StoreError) {
        var coder = RowCoder(sealing)
        var done = 0
        let select = try Self.reading { () throws(SQLiteError) in
            try SQLiteStatement("SELECT \(StoredRow.columns) FROM token", on: connection)
        }
        while try Self.reading({ () throws(SQLiteError) in try select.step() }) {
            let row = StoredRow(select)
            let token: Result<Token, SealingError>
            do throws(SealingError) {
                token = .success(
                    try select.withBlob(at: StoredRow.Column.value) { (value) throws(SealingError) in
                        try row.token(of: value, &coder)
                    }
                )
            } catch {
                token = .failure(error)
            }
            try body(token, row)
            done += 1
            if done % 1_000 == 0 { progress(StoreProgress(done: min(done, total), total: total)) }
        }
        progress(StoreProgress(done: total, total: total))
    }

    private static func reading<Result>(_ body: () throws(SQLiteError) -> Result) throws(StoreError) -> Result {
        do throws(SQLiteError) {
            return try body()
        } catch {
            throw .read(StoreFault(error))
        }
    }
}

/// Users and their sessions in a database that is restored.
extension OfflineSQLiteStore {
    /// Sessions of one step.
    private static let step = 1_000

    /// Removes the tokens of users that were erased, and their sessions or all sessions, from the copy of a backup.
    func remove(
        _ erased: ErasedRows, from writer: WriterConnection, _ sealing: Sealing, keepsSessions: Bool
    ) throws(StoreError) -> Remains {
        var (erased, remains) = (erased, Remains())
        do throws(SQLiteError) {
            let sessions = try writer.sessions(sealing)
            var ended: [StoredSession] = []
            var users = Set<[UInt8]>()
            try Self.forEachStep(of: sessions) { (rows) throws(SQLiteError) in
                for row in rows {
                    // A session that does not open is of no use.
                    let user = try? sessions.coder.open(row).session.user
                    let isErased = user.map { erased.isErased($0, TokenVersion(rawValue: row.number)) } ?? false
                    if isErased { users.insert(row.userKey) }
                    if isErased || user == nil || !keepsSessions { ended.append(row) }
                }
            }
            let slots = erased.slots
            remains.endedSessions = ended.count
            try writer.transaction { () throws(SQLiteError) in
                for slot in slots {
                    users.remove(try writer.key(at: slot))
                    try writer.connection.execute("DELETE FROM token WHERE slot = \(slot)")
                }
                writer.noteRemoved(slots.count)
                writer.noteEnded(try sessions.remove(ended), sessions)
                // What is written from now on must be newer than every erasure.
                if let last = erased.lastVersion {
                    try Schema.raiseVersionLimit(last.rawValue, in: writer.connection)
                }
            }
            remains.erasedUsers = slots.count + users.count
            remains.tokens = writer.tokenCount
        } catch {
            throw .write(StoreFault(error))
        }
        if let fault = erased.fault { throw .sealing(SealingError(fault)) }
        return remains
    }

    /// Calls `body` with all sessions, some at a time.
    private static func forEachStep(
        of sessions: SessionTable, _ body: ([StoredSession]) throws(SQLiteError) -> Void
    ) throws(SQLiteError) {
        var last: [UInt8]? = []
        while let start = last {
            let rows = try sessions.rows(after: start, limit: step)
            try body(rows)
            last = rows.count < step ? nil : rows.last?.key
        }
    }
}

extension WriterConnection {
    /// The key of the row in a slot; empty if there is none.
    fileprivate func key(at slot: Int64) throws(SQLiteError) -> [UInt8] {
        let select = try SQLiteStatement("SELECT key FROM token WHERE slot = ?1", on: connection)
        try select.bind(slot, at: 1)
        return try select.step() ? select.blob(at: 0) : []
    }
}

/// Finds the rows of a backup whose users were erased after it was made.
struct ErasedRows {
    /// One for each file of erasures; empty if no user was ever erased.
    private var searches: [Erasures.Search] = []
    /// A version that all of the erasures have; nil without any.
    let lastVersion: TokenVersion?
    /// Where the tokens lie that were found.
    private(set) var slots: [Int64] = []
    private(set) var fault: CryptographyError?

    init(_ files: [ErasuresFile]) throws(StoreError) {
        var last: TokenVersion?
        for file in files {
            guard let erasures = try file.load() else { continue }
            last = [last, erasures.last].compactMap(\.self).max()
            do throws(CryptographyError) {
                searches.append(try Erasures.Search(erasures))
            } catch {
                throw .sealing(SealingError(error))
            }
        }
        lastVersion = last
    }

    /// Remembers a token if its user was erased.
    mutating func note(_ token: Token, _ row: StoredRow) {
        if isErased(token.id, row.version) { slots.append(row.slot) }
    }

    /// Whether a user was erased after something was written.
    mutating func isErased(_ user: [UInt8], _ version: TokenVersion) -> Bool {
        do throws(CryptographyError) {
            for index in searches.indices where try searches[index].finds(user, writtenAs: version) { return true }
        } catch {
            fault = error
        }
        return false
    }
}

/// What remains after a restore.
struct Remains {
    var tokens = 0
    var erasedUsers = 0
    var endedSessions = 0
    /// The numbers of the keys that its tokens are sealed with.
    var keyNumbers: Set<Int> = []
}
