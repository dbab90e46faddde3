internal import Glibc
package import TokenStore

/// The SQLite store of a data folder, whether it exists already or not.
package struct SQLiteStoreProvider: StoreProvider {
    /// The data folder.
    private let directory: String
    private let options: StoreOptions

    /// - Parameters:
    ///   - directory: The data folder.
    ///   - options: What the operator has decided.
    package init(directory: String, options: StoreOptions) {
        self.directory = directory
        self.options = options
    }

    package var software: StoreSoftware { SQLiteLibrary.software }

    package var fileNames: [String] { DatabaseFileName.all }

    package var isShared: Bool { false }

    package var enforcesLimits: Bool { true }

    package var missingPath: String? {
        let path = directory + "/" + DatabaseFileName.database
        // What this user may not see is reported when the store is opened.
        guard unsafe access(path, F_OK) != 0, errno == ENOENT || errno == ENOTDIR else { return nil }
        return path
    }

    package var examiner: (any StoreExaminer)? { SQLiteExaminer(directory: directory) }

    package var inspector: (any StoreInspector)? { nil }

    package var backupVerifier: (any BackupVerifier)? {
        SQLiteBackupVerifier(keyRing: options.keyRing, isSealed: options.isSealed)
    }

    package var migrator: (any SchemaMigrator)? { nil }

    package func open(
        in directory: DataDirectory, report: @escaping @Sendable (StoreEvent) -> Void
    ) throws(StoreOpenError) -> any TokenStore {
        do throws(SQLiteOpenError) {
            return try SQLiteTokenStore(in: directory, options: options, report: report)
        } catch {
            throw error.shared
        }
    }

    package func takeOffline(
        in directory: DataDirectory, report: @escaping @Sendable (StoreEvent) -> Void
    ) throws(StoreOpenError) -> (any OfflineStore)? {
        do throws(SQLiteOpenError) {
            return try OfflineSQLiteStore(in: directory, options: options, report: report)
        } catch {
            throw error.shared
        }
    }

    package func copySource(
        in directory: DataDirectory, report: @escaping @Sendable (StoreEvent) -> Void
    ) throws(StoreOpenError) -> any CopySource {
        do throws(SQLiteOpenError) {
            return try SQLiteCopySource(in: directory, options: options, report: report)
        } catch {
            throw error.shared
        }
    }

    package func copyTarget(
        in directory: DataDirectory, report: @escaping @Sendable (StoreEvent) -> Void
    ) throws(StoreOpenError) -> any CopyTarget {
        try SQLiteCopyTarget(in: directory, options: options, report: report)
    }
}
