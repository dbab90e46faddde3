internal import System
package import TokenStore

/// Verifies backups where they are: reads the file alone, takes no lock and makes no file.
package struct SQLiteBackupVerifier: BackupVerifier {
    private let keyRing: KeyRingFile
    private let isSealed: Bool

    /// - Parameters:
    ///   - keyRing: The key ring with the keys that sealed the rows.
    ///   - isSealed: Whether the settings ask for sealing.
    package init(keyRing: KeyRingFile, isSealed: Bool) {
        self.keyRing = keyRing
        self.isSealed = isSealed
    }

    package func isBackup(_ path: String) -> Bool {
        BackupFile.isOne(path)
    }

    package func verify(
        _ path: String, _ progress: (StoreProgress) -> Void
    ) throws(StoreError) -> BackupVerification {
        try BackupFile.check(path)
        do throws(SQLiteOpenError) {
            let connection = try Schema.opening(path) { () throws(SQLiteError) in
                try SQLiteConnection(path: path, mode: .immutable)
            }
            let version = try Schema.check(connection, path: path)
            var found = BackupVerification(
                path: path, bytes: FileStatus.size(of: path), schemaVersion: version)
            found.damages = try Schema.opening(path) { () throws(SQLiteError) in try connection.structuralDamages() }
            // What is left of a damaged table may not be readable at all.
            guard found.damages.isEmpty else { return found }
            var options = StoreOptions(keyRing: keyRing)
            options.isSealed = isSealed
            let fault = try Schema.opening(path) { () throws(SQLiteError) in
                try SchemaTrial.fault(of: connection, options)
            }
            if let fault {
                found.damages.append(fault)
                return found
            }
            guard let keys = try keys(of: connection, path) else { return found }
            try Schema.opening(path) { () throws(SQLiteError) in
                try openRows(of: connection, Sealing(keys), &found, progress)
                try openSessions(of: connection, Sealing(keys), &found)
            }
            return found
        } catch {
            throw Self.refusal(of: path, error)
        }
    }

    /// The keys of its rows; nil if it has none.
    private func keys(of connection: SQLiteConnection, _ path: String) throws(SQLiteOpenError) -> StoreKeys? {
        let (identity, isEmpty, slotKey) = try Schema.opening(path) { () throws(SQLiteError) in
            let select = try SQLiteStatement("SELECT key_ring FROM store", on: connection)
            guard try select.step() else { throw SQLiteError.damaged("the table store is empty") }
            return (
                select.blob(at: 0), try connection.integer("SELECT count(*) FROM (SELECT 1 FROM token LIMIT 1)") == 0,
                try Schema.slotKey(of: connection)
            )
        }
        // Here no key is needed. Choosing a ring as below would create one if it is missing.
        if isEmpty && identity.isEmpty { return nil }
        do throws(KeyRingChoice.Refusal) {
            let ring = try KeyRingChoice(keyRing, isSealed: isSealed).ring(fitting: identity, isEmpty: false).ring
            return ring.map(StoreKeys.sealed) ?? .clear(index: slotKey)
        } catch {
            switch error {
            case .keyRing(let error): throw .keyRing(error)
            case .notSealed: throw .notSealed(path: path)
            case .sealed: throw .sealed(path: path)
            }
        }
    }

    private func openRows(
        of connection: SQLiteConnection, _ sealing: Sealing, _ found: inout BackupVerification,
        _ progress: (StoreProgress) -> Void
    ) throws(SQLiteError) {
        var coder = RowCoder(sealing)
        var duplicates = DuplicateTokens()
        let total = try connection.integer("SELECT tokens FROM store")
        let select = try SQLiteStatement("SELECT \(StoredRow.columns) FROM token NOT INDEXED", on: connection)
        while try select.step() {
            let row = StoredRow(select)
            found.tokens += 1
            duplicates.look(at: (row.slot, row.key))
            found.lastWrittenAt = max(found.lastWrittenAt ?? .min, row.times.writtenAt)
            do throws(SealingError) {
                _ = try select.withBlob(at: StoredRow.Column.value) { (value) throws(SealingError) in
                    try row.token(of: value, &coder)
                }
            } catch {
                found.unreadable["\(error)", default: 0] += 1
            }
            if found.tokens % 1_000 == 0 { progress(StoreProgress(done: min(found.tokens, total), total: total)) }
        }
        if let damage = duplicates.damage { found.damages.append(damage) }
        if found.tokens != total {
            found.damages.append("the store has counted \(total) tokens, but \(found.tokens) are there")
        }
    }

    private func openSessions(
        of connection: SQLiteConnection, _ sealing: Sealing, _ found: inout BackupVerification
    ) throws(SQLiteError) {
        var coder = RowCoder(sealing)
        let select = try SQLiteStatement("SELECT \(SessionRow.columns) FROM session", on: connection)
        while try select.step() {
            found.sessions += 1
            do throws(SealingError) {
                _ = try coder.open(StoredSession(select))
            } catch {
                found.unreadable["\(error)", default: 0] += 1
            }
        }
    }

    /// Rephrases errors for a backup.
    private static func refusal(of path: String, _ error: SQLiteOpenError) -> StoreError {
        switch error {
        case .notADatabase(_, let error): .refused("\(path) is damaged: \(error)")
        case .database(_, let error): .refused("\(path) cannot be read: \(error)")
        case .foreign: BackupFile.isNone(path)
        default: .refused("\(error)")
        }
    }
}

/// Finds out whether a store could work with the tables of a backup, without writing to the backup.
///
/// Reading all rows is not enough. In a database that is opened for reading only, SQLite ignores CHECK constraints, damaged ones
/// included (`sqlite3AddCheckConstraint` in its `build.c`). And some columns are used only by a store that writes. So empty copies of
/// the tables are created in memory, and opened there as after a restore.
enum SchemaTrial {
    /// Why the store could not be opened with these tables; nil if it could.
    ///
    /// - Parameters:
    ///   - connection: To the database, whose structure is sound.
    ///   - options: Those of the store.
    static func fault(
        of connection: SQLiteConnection, _ options: StoreOptions
    ) throws(SQLiteError) -> String? {
        let definitions = try definitions(of: connection)
        do throws(SQLiteError) {
            let memory = try SQLiteConnection(path: ":memory:", mode: .readWriteCreate)
            for definition in definitions { try SQLiteStatement(definition, on: memory).run() }
            try memory.execute(Schema.firstRow)
            let writer = try WriterConnection(memory, options: options)
            _ = try writer.sessions(Sealing(.clear(index: try Schema.slotKey(of: memory))))
            return nil
        } catch {
            return "the definitions of its tables are damaged: \(error.message)"
        }
    }

    /// The statements that create the tables and their indexes.
    ///
    /// They are safe to execute: SQLite parsed them when it opened the database, and accepts only plain definitions there.
    private static func definitions(of connection: SQLiteConnection) throws(SQLiteError) -> [String] {
        let select = try SQLiteStatement(
            """
            SELECT sql FROM sqlite_schema WHERE tbl_name IN ('token', 'store', 'session') AND sql IS NOT NULL
            AND type IN ('table', 'index') ORDER BY type DESC
            """,
            on: connection
        )
        var definitions: [String] = []
        while try select.step() { definitions.append(String(decoding: select.blob(at: 0), as: UTF8.self)) }
        return definitions
    }
}
