#if PostgreSQL
package import TokenStore

/// Opens the store in the database that `store.url` names.
package struct PostgresStoreProvider: SharedStoreProvider {
    let postgres: PostgresOptions
    let options: StoreOptions

    /// - Parameters:
    ///   - postgres: Where the database is, and how it is used.
    ///   - options: The settings that all stores have.
    package init(_ postgres: PostgresOptions, options: StoreOptions) {
        self.postgres = postgres
        self.options = options
    }

    package var software: StoreSoftware { PostgresLibrary.software }

    package func inspect() -> StoreInspection { DatabaseInspector(options: postgres).inspect() }

    package func open(in directory: DataDirectory) throws(StoreOpenError) -> any TokenStore {
        try open()
    }

    /// - Parameter interval: See `StoreAgreement`; tests use shorter ones.
    func open(lookingEvery interval: Duration = .seconds(3)) throws(StoreOpenError) -> PostgresTokenStore {
        // A placeholder: until the store is open and its keys are known, nothing is stored or looked up.
        let sealing = Sealing(.random(createdAt: 0))
        let state = PostgresState(sealing: sealing, versions: VersionClock(), postgres, options)
        let store = PostgresTokenStore(postgres, options, state, lookingEvery: interval)
        if options.isServing {
            // A key ring that cannot be read is refused even before the database can be reached.
            _ = try Result { () throws(KeyRingError) in try options.keyRing.load() }.mapError(StoreOpenError.keyRing)
                .get()
        }
        try store.open()
        return store
    }

    package func copySource(in directory: DataDirectory) throws(StoreOpenError) -> any CopySource {
        try PostgresCopySource.open(postgres, keys)
    }

    package func copyTarget(in directory: DataDirectory) throws(StoreOpenError) -> any CopyTarget {
        var postgres = postgres
        postgres.fillsStore = true
        return try PostgresCopyTarget(postgres, PostgresStoreProvider(postgres, options: options).keys)
    }

    /// Opens the store and closes it again; returns its keys.
    private func keys() throws(StoreOpenError) -> Sealing {
        let store = try open()
        defer { store.close() }
        return store.state.sealing
    }
}
#endif
