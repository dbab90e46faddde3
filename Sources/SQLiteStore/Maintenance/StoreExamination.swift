internal import Glibc
internal import System
internal import TokenStore

/// What a store's files tell while no server has them open, found without changing anything.
package struct StoreExamination: Sendable {
    /// Nil when all is still in the log.
    package let schemaVersion: Int?
    /// The one that a start converts earlier ones to.
    package static let currentSchemaVersion = Schema.version
    /// As of the last time that all of the log was moved into the database.
    package let tokens: Int
    package let databaseBytes: Int
    /// More than 0 after a crash; the next start moves it into the database.
    package let logBytes: Int
    /// The fingerprint of the key ring that it was sealed with; nil in the clear.
    package let keyRing: String?
    /// How often keys have sealed, by their numbers, as of the same time.
    package let seals: [Int: Int64]
    /// Nil when the log can be read to its end.
    package let logDamage: LogDamage?

    /// The copies of damaged logs that are kept in a folder.
    package static func keptLogs(directory: String) -> [String] {
        KeptLog.all(of: directory + "/" + SQLiteTokenStore.fileName)
    }

    /// The process that has the database locked that a folder has a link to; nil without a link or when none has.
    package static func holder(ofDatabaseIn directory: String) -> Int? {
        DatabaseLock.holder(ofDatabaseIn: directory)
    }

    /// Looks at the store of a folder; nil when there is none.
    package static func examine(directory: String) throws(SQLiteOpenError) -> StoreExamination? {
        let path: String
        do throws(LinkError) {
            path = try FollowedPath(directory + "/" + SQLiteTokenStore.fileName).path
        } catch {
            throw .directory(.link(error))
        }
        let databaseBytes: Int
        do throws(SystemError) {
            databaseBytes = try FileStatus.read(path).size
        } catch {
            guard error.code != ENOENT && error.code != ENOTDIR else { return nil }
            throw .directory(.unusable(path: directory, call: error.call, code: error.code))
        }
        let logBytes = FileStatus.size(of: path + "-wal")
        let logDamage = try Schema.opening(path) { () throws(SQLiteError) in
            try LogExamination.damage(of: Path.resolved(path) + "-wal")
        }
        let connection = try Schema.opening(path) { () throws(SQLiteError) in
            try SQLiteConnection(path: path, mode: .still)
        }
        let version = try Schema.check(connection, path: path)
        guard version > 1 else {
            return StoreExamination(
                schemaVersion: version == 0 ? nil : version, tokens: 0, databaseBytes: databaseBytes,
                logBytes: logBytes, keyRing: nil, seals: [:], logDamage: logDamage
            )
        }
        return try Schema.opening(path) { () throws(SQLiteError) in
            let select = try SQLiteStatement("SELECT key_ring, tokens FROM store", on: connection)
            let isThere = try select.step()
            let identity = isThere ? select.blob(at: 0) : []
            return StoreExamination(
                schemaVersion: version, tokens: isThere ? select.integer(at: 1) : 0, databaseBytes: databaseBytes,
                logBytes: logBytes, keyRing: identity.isEmpty ? nil : KeyRingExamination.fingerprint(identity),
                seals: identity.isEmpty || version < Schema.version ? [:] : try Schema.seals(of: connection),
                logDamage: logDamage
            )
        }
    }
}
