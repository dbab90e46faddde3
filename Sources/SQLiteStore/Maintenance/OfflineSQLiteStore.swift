internal import Cryptography
internal import Glibc
internal import System
package import TokenStore

/// A SQLite store that no process has open, so that its database can be replaced.
///
/// The new database is made beside the old one, checked and synced before anything is replaced. A crash leaves the one or the
/// other; the next start refuses the new one if the WAL of the old one is still there. The folder is locked meanwhile.
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
        let former = formerCounts()
        let left = try check(path, keepsSessions: keepsSessions, versionLimit: former?.versionLimit, progress)
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
    ///
    /// - Parameter versionLimit: That of the replaced store; nil for none.
    private func check(
        _ path: String, keepsSessions: Bool, versionLimit: Int64?, _ progress: (StoreProgress) -> Void
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
        var keyNumbers: Set<Int> = []
        var unreadable = 0
        var ended: [StoredSession] = []
        do throws(SQLiteError) {
            _ = try RowAudit(opened.writer.connection, sealing, progress) { row in
                switch row {
                case .token(let row, .success(let token)):
                    keyNumbers.insert(row.keyNumber)
                    erased.note(token, row)
                case .token: unreadable += 1
                case .session(let row, let opened):
                    // A session that does not open is of no use.
                    let isErased = (try? opened.get()).map { erased.note($0.session, row) } ?? true
                    if isErased || !keepsSessions { ended.append(row) }
                }
            }
        } catch {
            throw .read(StoreFault(error))
        }
        if let fault = erased.fault { throw .sealing(SealingError(fault)) }
        guard unreadable == 0 else {
            throw .refused(
                """
                \(path) has \(unreadable) \(unreadable == 1 ? "row" : "rows") that the key ring \(options.keyRing.path) does \
                not open; nothing was replaced. token-cache verify FILE names the missing keys: append their lines from an \
                earlier copy of the key ring
                """
            )
        }
        do throws(SQLiteError) {
            try remove(erased, ended, from: opened.writer, sealing, versionLimit)
        } catch {
            throw .write(StoreFault(error))
        }
        return Remains(
            tokens: opened.writer.tokenCount, erasedUsers: erased.users.count, endedSessions: ended.count,
            keyNumbers: keyNumbers)
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

    /// Removes the tokens of users that were erased, and sessions, from the copy of a backup.
    private func remove(
        _ erased: ErasedRows, _ ended: [StoredSession], from writer: WriterConnection, _ sealing: Sealing,
        _ versionLimit: Int64?
    ) throws(SQLiteError) {
        let sessions = try writer.sessions(sealing)
        try writer.transaction { () throws(SQLiteError) in
            for slot in erased.slots { try writer.connection.execute("DELETE FROM token WHERE slot = \(slot)") }
            writer.noteRemoved(erased.slots.count)
            writer.noteEnded(try sessions.remove(ended), sessions)
            // What is written from now on must be newer than what there was, and than every erasure.
            let limit = max(versionLimit ?? 0, erased.lastVersion?.rawValue ?? 0)
            try Schema.raiseVersionLimit(limit, in: writer.connection)
        }
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
    /// The row keys of the users that were found.
    private(set) var users: Set<[UInt8]> = []
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
    mutating func note(_ token: Token, _ row: StoredToken) {
        guard isErased(token.id, row.version) else { return }
        slots.append(row.slot)
        users.insert(row.key)
    }

    /// Whether a session's user was erased.
    mutating func note(_ session: UserSession, _ row: StoredSession) -> Bool {
        let isErased = isErased(session.user, TokenVersion(rawValue: row.number))
        if isErased { users.insert(row.userKey) }
        return isErased
    }

    /// Whether a user was erased after something was written.
    private mutating func isErased(_ user: [UInt8], _ version: TokenVersion) -> Bool {
        do throws(CryptographyError) {
            for index in searches.indices where try searches[index].finds(user, writtenAs: version) { return true }
        } catch {
            fault = error
        }
        return false
    }
}

/// What is left of a backup.
private struct Remains {
    let tokens: Int
    let erasedUsers: Int
    let endedSessions: Int
    /// Of the keys that its tokens are sealed with.
    let keyNumbers: Set<Int>
}
