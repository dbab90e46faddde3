internal import Glibc
internal import System
package import TokenStore

/// Examines the files of a SQLite store.
extension SQLiteStoreProvider: StoreExaminer {
    package var path: String { directory + "/" + DatabaseFileName.database }

    package var damagedCopy: String? { DatabaseFileName.damagedCopy(of: path) }

    package func examine() throws(StoreOpenError) -> StoreExamination? {
        try general { () throws(SQLiteOpenError) in try examineDatabase() }
    }

    private func examineDatabase() throws(SQLiteOpenError) -> StoreExamination? {
        let path = try DatabaseFile(in: directory).path
        _ = try StoreOpener(directory: directory, database: path, options: options, report: { _ in }).isEmpty
        var found = StoreExamination()
        do throws(SystemError) {
            found.databaseBytes = try FileStatus.read(path).size
        } catch {
            guard error.code != ENOENT && error.code != ENOTDIR else { return nil }
            throw .directory(.unusable(path: directory, call: error.call, code: error.code))
        }
        found.walBytes = FileStatus.size(of: path + "-wal")
        found.damage = try WALExaminer.fault(beside: path)?.general
        let connection = try Schema.opening(path) { () throws(SQLiteError) in
            try SQLiteConnection(path: path, mode: .immutable)
        }
        let version = try Schema.check(connection, path: path)
        guard version > 0 else { return found }
        found.schemaVersion = version
        try Schema.opening(path) { () throws(SQLiteError) in
            let select = try SQLiteStatement("SELECT key_ring, tokens FROM store", on: connection)
            guard try select.step() else { return }
            let identity = select.blob(at: 0)
            found.tokens = select.integer(at: 1)
            guard try !Schema.isEmpty(connection) else { return }
            // Damaged rows are left for `verify` to find.
            let numbers = identity.isEmpty ? nil : try? KeyNumbers.read(connection, rows: KeyNumbers.rowsForOperator)
            found.sealing = StoreSealing(
                keyRing: identity.isEmpty ? nil : KeyRing.fingerprint(identity), keyNumbers: numbers ?? [])
        }
        return found
    }
}

/// Verifies backups in place: only reads the file, takes no lock and makes no other file.
extension SQLiteStoreProvider: BackupVerifier {
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
            if let damage = try Schema.opening(path, { () throws(SQLiteError) in try Schema.damage(of: connection) }) {
                found.damages.append(damage)
                return found
            }
            let opener = StoreOpener(directory: "", database: path, options: options) { _ in }
            let keys = try opener.presentKeys(of: connection)
            try Schema.opening(path) { () throws(SQLiteError) in
                let rows = try OpenedRows(connection, Sealing(keys))
                found.damages = try rows.readAll(progress)
                (found.tokens, found.sessions, found.unreadable) = (rows.tokens, rows.sessions, rows.unreadable)
                found.lastWrittenAt = rows.lastWrittenAt
            }
            return found
        } catch {
            throw BackupFile.refusal(error, of: path)
        }
    }
}
