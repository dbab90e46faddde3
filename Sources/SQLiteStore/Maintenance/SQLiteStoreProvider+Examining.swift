import Glibc
import System
package import TokenStore

/// The files of a closed SQLite store.
extension SQLiteStoreProvider: FileStoreProvider {
    package var path: String { directory + "/" + DatabaseFileName.database }

    package var isMissing: Bool {
        // As a failed VACUUM INTO leaves it; a start makes a store of it.
        if FileStatus(path)?.size == 0, FileStatus(path + "-wal") == nil { return true }
        // That this user may not look up the path is reported when the store is opened.
        return unsafe access(path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR)
    }

    package var fileNames: [String] { DatabaseFileName.all }

    package var damagedCopy: String? { DatabaseFileName.damagedCopy(of: path) }

    package func examine() throws(StoreOpenError) -> StoreExamination? {
        try general { () throws(SQLiteOpenError) in try examineDatabase() }
    }

    private func examineDatabase() throws(SQLiteOpenError) -> StoreExamination? {
        let path = try DatabaseFile(in: directory).path
        _ = try StoreOpener(directory: directory, database: path, options: options).isEmpty
        var found = StoreExamination()
        do {
            found.databaseBytes = try FileStatus.read(path).size
        } catch {
            guard error.code != ENOENT && error.code != ENOTDIR else { return nil }
            throw .directory(.unusable(path: directory, call: error.call, code: error.code))
        }
        found.walBytes = FileStatus.allocatedSize(of: path + "-wal")
        found.damage = try WALExaminer.fault(beside: path)?.general
        let connection = try Schema.opening(path) { () throws(SQLiteError) in
            try SQLiteConnection(path: path, mode: .immutable)
        }
        let version = try Schema.check(connection, path: path)
        guard version > 0 else { return found }
        found.schemaVersion = version
        found.lastWrite = Schema.lastWrite(to: connection)
        try Schema.opening(path) { () throws(SQLiteError) in
            let select = try SQLiteStatement("SELECT key_ring, tokens FROM store", on: connection)
            guard try select.step() else { return }
            let identity = select.blob(at: 0)
            found.tokens = select.integer(at: 1)
            guard try !Schema.isEmpty(connection) else { return }
            guard !identity.isEmpty else {
                found.damage = found.damage ?? .notSealed(place: "the store \(path)")
                return
            }
            let walk = Schema.walk(of: connection)
            let numbers = [walk?.present, walk?.last].reduce(into: Set<Int>()) { numbers, report in
                numbers.formUnion(report?.keyNumbers ?? [])
                numbers.formUnion(report?.missingKeys ?? [])
            }
            found.walk = walk
            found.sealing = StoreSealing(keyRing: KeyRing.fingerprint(identity), keyNumbers: numbers)
        }
        return found
    }
}

/// Backups.
extension SQLiteStoreProvider {
    package func isBackup(_ path: String) -> Bool {
        BackupFile.isOne(path)
    }

    package func restore(
        in directory: DataDirectory, from path: String, keepsSessions: Bool, lacksKeys: Bool,
        _ progress: (StoreProgress) -> Void
    ) throws(StoreError) -> StoreReplacement {
        let store: OfflineSQLiteStore
        do {
            store = try OfflineSQLiteStore(in: directory, options: options)
        } catch {
            throw .refused("\(error)")
        }
        return try store.restore(path, keepsSessions: keepsSessions, lacksKeys: lacksKeys, progress)
    }

    /// Verifies a backup in place: only reads the file, takes no lock and makes no other file.
    package func verify(
        _ path: String, _ progress: (StoreProgress) -> Void
    ) throws(StoreError) -> BackupVerification {
        try BackupFile.check(path)
        do {
            let (connection, version) = try BackupFile.open(path)
            var found = BackupVerification(
                path: path, bytes: FileStatus.size(of: path), schemaVersion: version)
            found.damages = try Schema.opening(path) { () throws(SQLiteError) in try connection.structuralDamages() }
            // What is left of a damaged table may not be readable at all.
            guard found.damages.isEmpty else { return found }
            if let damage = try Schema.opening(path, { () throws(SQLiteError) in try Schema.damage(of: connection) }) {
                found.damages.append(damage)
                return found
            }
            let opener = StoreOpener(directory: "", database: path, options: options)
            let ring = try opener.presentRing(of: connection)
            try Schema.opening(path) { () throws(SQLiteError) in
                let rows = try OpenedRows(connection, Sealing(ring))
                found.damages = try rows.readAll(of: connection, progress)
                let report = rows.report
                (found.tokens, found.sessions, found.lastWrittenAt) = (
                    report.tokens, report.sessions, report.lastWrittenAt
                )
                (found.unreadable, found.unreadableRows) = (report.unreadable, report.unreadableRows)
                found.missingKeys = report.missingKeys.sorted()
                found.missingErasures = ErasuresFile.missing(
                    of: Schema.erasures(of: connection), byStoreWith: options.keyRing, in: directory)
            }
            return found
        } catch {
            throw BackupFile.refusal(error, of: path)
        }
    }
}
