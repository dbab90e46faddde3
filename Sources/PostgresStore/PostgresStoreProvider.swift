#if PostgreSQL
import Cryptography
import System
package import TokenStore

/// Opens the store in the database that `store.url` names.
package struct PostgresStoreProvider: SharedStoreProvider {
    let postgres: PostgresOptions
    private(set) var options: StoreOptions

    /// - Parameters:
    ///   - postgres: Where the database is, and how it is used.
    ///   - options: The settings that all stores have.
    package init(_ postgres: PostgresOptions, options: StoreOptions) {
        self.postgres = postgres
        self.options = options
    }

    package var software: StoreSoftware { StoreSoftware(name: "libpq", version: PostgresLibrary.version) }

    package func inspect() -> StoreInspection { DatabaseInspector(postgres).inspect() }

    package func open(in directory: DataDirectory) throws(StoreOpenError) -> any TokenStore {
        try open(Upkeep.Times())
    }

    /// - Parameter times: Those of the background work; tests use shorter ones.
    func open(_ times: Upkeep.Times) throws(StoreOpenError) -> PostgresTokenStore {
        // A placeholder: until the store is open and its keys are known, nothing is stored or looked up.
        let sealing = Sealing(.clear(index: .random()))
        let state = PostgresState(sealing: sealing, versions: VersionClock(), postgres, options)
        let store = PostgresTokenStore(postgres, options, state, times)
        if options.isServing { try checkKeyRing() }
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

    package func copySource(in directory: DataDirectory) throws(StoreOpenError) -> any CopySource {
        try PostgresCopySource.open(postgres) { (isSealed) throws(StoreOpenError) in try keys(isSealed) }
    }

    package func copyTarget(in directory: DataDirectory) throws(StoreOpenError) -> any CopyTarget {
        try PostgresCopyTarget(postgres) { () throws(StoreOpenError) in try keys(nil) }
    }

    /// Opens the store and closes it again; returns its state for the keys and the version clock.
    ///
    /// - Parameter isSealed: Nil for what the settings say.
    private func keys(_ isSealed: Bool?) throws(StoreOpenError) -> PostgresState {
        var own = self
        own.options.isSealed = isSealed ?? options.isSealed
        let store = try own.open(Upkeep.Times())
        defer { store.close() }
        return store.state
    }
}
#endif
