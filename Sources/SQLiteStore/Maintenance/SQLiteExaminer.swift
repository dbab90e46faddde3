internal import Glibc
internal import System
package import TokenStore

/// Examines the files of a SQLite store.
extension SQLiteStoreProvider: StoreExaminer {
    package var path: String { directory + "/" + DatabaseFileName.database }

    package var damagedCopy: String? { DatabaseFileName.damagedCopy(of: path) }

    package func examine() throws(StoreOpenError) -> StoreExamination? {
        do throws(SQLiteOpenError) {
            return try examineDatabase()
        } catch {
            throw error.general
        }
    }

    private func examineDatabase() throws(SQLiteOpenError) -> StoreExamination? {
        let path = try DatabaseFile(in: directory).path
        var found = StoreExamination()
        do throws(SystemError) {
            found.databaseBytes = try FileStatus.read(path).size
        } catch {
            guard error.code != ENOENT && error.code != ENOTDIR else { return nil }
            throw .directory(.unusable(path: directory, call: error.call, code: error.code))
        }
        let wal = path + "-wal"
        found.walBytes = FileStatus.size(of: wal)
        switch try Schema.opening(path, { () throws(SQLiteError) in try WALExaminer.examine(wal, of: path) }) {
        case .sound: break
        case .foreign: found.damage = SQLiteOpenError.foreignWAL(path: path, wal: wal).general
        case .damaged(let damage): found.damage = SQLiteOpenError.damagedWAL(path: wal, damage).general
        }
        let connection = try Schema.opening(path) { () throws(SQLiteError) in
            try SQLiteConnection(path: path, mode: .immutable)
        }
        let version = try Schema.check(connection, path: path)
        if version > 0 { found.schemaVersion = version }
        guard version > 0 else { return found }
        try Schema.opening(path) { () throws(SQLiteError) in
            let select = try SQLiteStatement("SELECT key_ring, tokens FROM store", on: connection)
            guard try select.step() else { return }
            let identity = select.blob(at: 0)
            found.tokens = select.integer(at: 1)
            found.isEmpty = try Schema.isEmpty(connection)
            guard !identity.isEmpty else { return }
            found.keyRing = KeyRing.fingerprint(identity)
            // Damaged rows are for `verify` to find.
            found.keyNumbers = (try? KeyNumbers.read(connection, rows: KeyNumbers.rowsForOperator)) ?? []
        }
        return found
    }
}
