#if PostgreSQL
internal import Cryptography
internal import System
package import TokenStore

/// The store in the database that `store.url` names.
package struct PostgresStoreProvider: StoreProvider {
    private let postgres: PostgresOptions
    private var options: StoreOptions

    /// - Parameters:
    ///   - postgres: Where the database is, and how it is used.
    ///   - options: What the operator has decided.
    package init(_ postgres: PostgresOptions, options: StoreOptions) {
        self.postgres = postgres
        self.options = options
    }

    package var software: StoreSoftware { StoreSoftware(name: "libpq", version: PostgresLibrary.version) }

    package var fileNames: [String] { [] }

    package var isShared: Bool { true }

    package var missingPath: String? { nil }

    package var examiner: (any StoreExaminer)? { nil }

    package var inspector: (any StoreInspector)? { DatabaseInspector(postgres) }

    package var backupVerifier: (any BackupVerifier)? { nil }

    package var migrator: (any SchemaMigrator)? { PostgresMigrator(postgres, options.retention) }

    package func open(
        in directory: DataDirectory, report: @escaping @Sendable (StoreEvent) -> Void
    ) throws(StoreOpenError) -> any TokenStore {
        try open(Upkeep.Times(), report: report)
    }

    /// - Parameter times: Shorter ones for tests.
    func open(
        _ times: Upkeep.Times, report: @escaping @Sendable (StoreEvent) -> Void
    ) throws(StoreOpenError) -> PostgresTokenStore {
        let state: PostgresState
        do throws(CryptographyError) {
            // Until the store is open, nothing is stored or looked for with this key.
            let sealing = Sealing(.clear(index: try .random()))
            state = PostgresState(sealing: sealing, versions: try VersionClock(), postgres, options, report: report)
        } catch {
            throw .store(StoreFault("\(error)"))
        }
        let store = PostgresTokenStore(postgres, options, state, times)
        if options.waitsForDatabase { try checkKeyRing() }
        try store.open()
        return store
    }

    /// Refuses a key ring that cannot be read, for which no database is needed.
    private func checkKeyRing() throws(StoreOpenError) {
        guard options.isSealed else { return }
        do throws(KeyRingError) {
            _ = try options.keyRing.load()
        } catch {
            throw .keyRing(error)
        }
    }

    package func takeOffline(
        in directory: DataDirectory, report: @escaping @Sendable (StoreEvent) -> Void
    ) throws(StoreOpenError) -> (any OfflineStore)? { nil }

    package func copySource(
        in directory: DataDirectory, report: @escaping @Sendable (StoreEvent) -> Void
    ) throws(StoreOpenError) -> any CopySource {
        try PostgresCopySource.open(postgres) { (isSealed) throws(StoreOpenError) in try keys(isSealed, report) }
    }

    package func copyTarget(
        in directory: DataDirectory, report: @escaping @Sendable (StoreEvent) -> Void
    ) throws(StoreOpenError) -> any CopyTarget {
        try PostgresCopyTarget(postgres) { () throws(StoreOpenError) in try keys(nil, report) }
    }

    /// Opens the store as a command does, for its keys and its clock of versions.
    private func keys(
        _ isSealed: Bool?, _ report: @escaping @Sendable (StoreEvent) -> Void
    ) throws(StoreOpenError) -> PostgresState {
        var own = self
        own.options.isSealed = isSealed ?? options.isSealed
        let store = try own.open(Upkeep.Times(), report: report)
        defer { store.close() }
        return store.state
    }
}
#endif
