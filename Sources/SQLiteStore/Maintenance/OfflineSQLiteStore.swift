import Glibc
import System
import TokenStore

/// A SQLite store that no process has open, so that its database can be replaced.
///
/// The new database is made beside the old one and synced before it replaces that. A crash leaves one or the other; the
/// next start refuses the new one if the WAL of the old one is still there. The folder is locked meanwhile.
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
        let former = formerCounts()
        var replacement: StoreReplacement
        do {
            replacement = try fill(
                path, keepsSessions: keepsSessions, lacksKeys: lacksKeys, former ?? (0, 0, 0), progress)
            try PrivateFile.synchronize(database.new)
        } catch {
            guard case .write(let fault) = error, fault.cause == .diskFull else { throw error }
            throw .refused(
                """
                the disk of \(directory.path) has no room for a second store beside the present one\(BackupFile.consequence). Free some \
                space there
                """)
        }
        try database.replace()
        (replacement.bytes, replacement.replacedTokens) = (FileStatus.size(of: database.path), former?.tokens)
        if let limit = former?.versionLimit, limit > 0 {
            replacement.lostBefore = min(limit / 1_000_000, Int64(time(nil)))
        }
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

    /// Checks a backup, decrypts each row, and makes a new database of the rows that are restored.
    ///
    /// A row that does not open stays as it is: the others are worth more than a refusal, and its key may come back. If users were
    /// erased after it was written, it may be one of theirs and is left out.
    private func fill(
        _ path: String, keepsSessions: Bool, lacksKeys: Bool, _ former: Counts, _ progress: (StoreProgress) -> Void
    ) throws(StoreError) -> StoreReplacement {
        let backup: SQLiteConnection
        let sealing: Sealing
        do {
            backup = try BackupFile.open(path).connection
            try Schema.opening(path) { () throws(SQLiteError) in try BackupFile.checkStructure(backup, indexes: false) }
            let opener = StoreOpener(directory: directory.path, database: path, options: options)
            sealing = Sealing(try opener.presentRing(of: backup))
        } catch {
            throw BackupFile.refusal(error, of: path, BackupFile.consequence)
        }
        let erasures = try ErasuresFile.load(followedByStoreWith: options.keyRing, in: directory.path)
        let (rows, counts, erased) = try StoreError.reading { () throws(SQLiteError) in
            (try OpenedRows(backup, sealing), try Schema.counts(of: backup), Schema.erasures(of: backup))
        }
        try PrivateFile.create(database.new)
        var new = try StoreError.writing { () throws(SQLiteError) in try RestoredDatabase(database.new) }
        var replacement = StoreReplacement()
        let lastErasure = erasures.compactMap(\.last).max()
        while let row = try StoreError.reading({ () throws(SQLiteError) in try rows.next() }) {
            var isErased = false
            // That of a row that does not open.
            var version: TokenVersion?
            switch row {
            case .token(let row, .success(let token)):
                if rows.report.tokens.isMultiple(of: 1_000) {
                    progress(StoreProgress(done: min(rows.report.tokens, counts.tokens), total: counts.tokens))
                }
                isErased = erasures.find(token.id, writtenAs: row.version)
            case .session(let row, .success(let opened)):
                isErased = erasures.find(opened.session.user, writtenAs: TokenVersion(rawValue: row.number))
            case .token(let row, .failure): version = row.version
            case .session(let row, .failure): version = TokenVersion(rawValue: row.number)
            }
            if case .session = row, isErased || !keepsSessions {
                replacement.endedSessions += 1
                continue
            }
            if let version {
                if let lastErasure, version < lastErasure {
                    replacement.omittedUnreadable += 1
                    continue
                }
                replacement.unreadable += 1
            }
            if !isErased { try StoreError.writing { () throws(SQLiteError) in try new.add(row, rows.statement) } }
        }
        progress(StoreProgress(done: counts.tokens, total: counts.tokens))
        guard rows.report.missingKeys.isEmpty || lacksKeys else {
            let numbers = rows.report.missingKeys.sorted().map(String.init).joined(separator: ", ")
            throw .refused(
                """
                \(path) has tokens that are sealed with keys which the key ring \(options.keyRing.path) does not have (\(numbers)); \
                nothing was replaced. Append their lines from an earlier copy of the key ring or, if these rows may stay as they \
                are until then, give --lacks-keys
                """
            )
        }
        let known = max(former.erasures, erased)
        let found = erasures.reduce(0) { $0 + $1.count }
        replacement.missingErasures = max(0, known - found)
        // Later writes must get higher versions than any row of the replaced store and any erasure.
        let limit = erasures.reduce(former.versionLimit) { max($0, $1.last?.rawValue ?? 0) }
        try StoreError.writing { () throws(SQLiteError) in
            // Otherwise a new key could get the number of one that the ring lacks.
            let newest = max(sealing.ring.newest.number, rows.report.missingKeys.max() ?? 0)
            try new.finish(of: backup, versionLimit: limit, erasures: max(known, found), newestKey: newest)
        }
        replacement.tokens = new.tokens
        replacement.erasedUsers = erasures.reduce(0) { $0 + $1.foundCount }
        replacement.lostAfter = rows.report.lastWrittenAt
        return replacement
    }
}

/// A database that is made of the rows of a backup, in the order in which they lie there.
///
/// Rows that are not restored never get into it, so nothing has to be overwritten, and it has no free pages.
private struct RestoredDatabase {
    private(set) var tokens = 0
    private var sessions = 0
    private let connection: SQLiteConnection
    private let addToken, addSession: SQLiteStatement

    /// - Parameter path: An empty file, which the caller syncs.
    init(_ path: String) throws(SQLiteError) {
        let connection = try SQLiteConnection(path: path, mode: .readWriteCreate)
        try connection.execute("PRAGMA page_size = \(SQLiteConnection.pageSize)")
        try connection.giveUpSafety()
        try Schema.create(connection, indexes: false)
        func insertion(_ table: String, _ columns: String) throws(SQLiteError) -> SQLiteStatement {
            let values = columns.split(separator: ",").map { _ in "?" }.joined(separator: ", ")
            return try SQLiteStatement("INSERT INTO \(table) (\(columns)) VALUES (\(values))", on: connection)
        }
        addToken = try insertion("token", StoredToken.columns)
        addSession = try insertion("session", SessionRow.columns)
        // The disk of /tmp, where SQLite would sort, may be small.
        let folder = Path.folder(of: path).replacing("'", with: "''")
        try connection.execute("PRAGMA temp_store_directory = '\(folder)'; BEGIN")
        self.connection = connection
    }

    /// - Parameter statement: Has read the row.
    mutating func add(_ row: OpenedRows.Row, _ statement: SQLiteStatement) throws(SQLiteError) {
        let insert: SQLiteStatement
        switch row {
        case .token: (insert, tokens) = (addToken, tokens + 1)
        case .session: (insert, sessions) = (addSession, sessions + 1)
        }
        try insert.bindRow(of: statement)
        try insert.run()
    }

    /// - Parameters:
    ///   - backup: Where the rows are from.
    ///   - versionLimit: See `Schema.versionLimit`.
    ///   - erasures: How many erasures the database knows of.
    ///   - newestKey: See `WalkState`.
    func finish(
        of backup: SQLiteConnection, versionLimit: Int64, erasures: Int, newestKey: Int
    ) throws(SQLiteError) {
        let store = try SQLiteStatement("SELECT key_ring, slot_key, looked_at, version_limit FROM store", on: backup)
        let update = try SQLiteStatement(
            """
            UPDATE store SET key_ring = ?1, slot_key = ?2, looked_at = ?3, version_limit = ?4, tokens = \(tokens),
                sessions = \(sessions)
            """, on: connection)
        _ = try store.step()
        try update.bindRow(of: store)
        try update.run()
        try Schema.raiseVersionLimit(versionLimit, in: connection)
        if erasures > 0 { try Schema.set(erasures: erasures, in: connection) }
        var walk = WalkState()
        walk.newestKey = newestKey
        try connection.execute(Schema.walkTable)
        try Schema.set(walk: walk.text, in: connection)
        // Only now, so that SQLite sorts their entries: the rows come in another order.
        try connection.execute("\(Schema.indexes); COMMIT")
    }
}
