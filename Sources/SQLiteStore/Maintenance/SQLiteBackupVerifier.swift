internal import System
package import TokenStore

/// Verifies backups where they are: reads the file alone, takes no lock and makes no file.
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
