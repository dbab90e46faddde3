#if PostgreSQL
internal import Cryptography
internal import System
package import TokenStore

/// Opens the store in the database that `store.url` names.
package struct PostgresStoreProvider: StoreProvider {
    private let postgres: PostgresOptions
    private var options: StoreOptions

    /// - Parameters:
    ///   - postgres: Where the database is, and how it is used.
    ///   - options: The settings that all stores have.
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

    /// - Parameter times: Those of the background work; tests use shorter ones.
    func open(
        _ times: Upkeep.Times, report: @escaping @Sendable (StoreEvent) -> Void
    ) throws(StoreOpenError) -> PostgresTokenStore {
        // A placeholder: until the store is open and its keys are known, nothing is stored or looked up.
        let sealing = Sealing(.clear(index: .random()))
        let state = PostgresState(sealing: sealing, versions: VersionClock(), postgres, options, report: report)
        let store = PostgresTokenStore(postgres, options, state, times)
        if options.waitsForDatabase { try checkKeyRing() }
        try store.open()
        return store
    }

    /// Refuses a key ring that cannot be read, even before the database can be reached.
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

    /// Opens the store and closes it again; returns its state for the keys and the version clock.
    ///
    /// - Parameter isSealed: Nil for what the settings say.
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
