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
            if let damage = try Schema.opening(path, { () throws(SQLiteError) in try Schema.damage(of: connection) }) {
                found.damages.append(damage)
                return found
            }
            var options = StoreOptions(keyRing: keyRing)
            options.isSealed = isSealed
            let opener = StoreOpener(directory: "", database: path, options: options) { _ in }
            let keys = try opener.presentKeys(of: connection)
            let audit = try Schema.opening(path) { () throws(SQLiteError) in
                try RowAudit(connection, Sealing(keys), progress)
            }
            (found.tokens, found.sessions, found.lastWrittenAt) = (audit.tokens, audit.sessions, audit.lastWrittenAt)
            (found.unreadable, found.damages) = (audit.unreadable, audit.damages)
            return found
        } catch {
            throw Self.refusal(of: path, error)
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
