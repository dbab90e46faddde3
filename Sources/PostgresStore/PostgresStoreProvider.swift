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

    /// The database has to limit its size.

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
        let target = try target()
        // Until the store is open, nothing is stored or looked for with this key.
        let sealing = Sealing(.clear(index: try random { () throws(CryptographyError) in try .random() }))
        let versions = try random { () throws(CryptographyError) in try VersionClock() }
        let state = PostgresState(
            sealing: sealing, versions: versions, hosts: target.hosts.map(\.description), options: options,
            report: report)
        let sessions = PrimarySessions(target, postgres.durability) {
            state.refusalOfOperators
        } observe: { facts, rules in
            state.note(facts, rules)
        }
        let agreement = StoreAgreement(options, state)
        let opening = StoreOpening(
            waits: options.waitsForDatabase, PrimarySessions(target, postgres.durability), state, agreement)
        let store = PostgresTokenStore(
            postgres, target, state, sessions, options.isSealed ? agreement : nil, opening,
            Upkeep(sessions, state, agreement, times))
        if options.waitsForDatabase { try checkKeyRing() }
        try store.open(opening, waits: options.waitsForDatabase)
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

    private func target() throws(StoreOpenError) -> ConnectionTarget {
        do throws(PostgresError) {
            return try ConnectionTarget(url: postgres.url, password: postgres.password)
        } catch {
            throw StoreOpenError(error)
        }
    }

    private func random<Value>(_ body: () throws(CryptographyError) -> Value) throws(StoreOpenError) -> Value {
        do throws(CryptographyError) {
            return try body()
        } catch {
            throw .store(StoreFault("\(error)"))
        }
    }

    package func takeOffline(
        in directory: DataDirectory, report: @escaping @Sendable (StoreEvent) -> Void
    ) throws(StoreOpenError) -> (any OfflineStore)? { nil }

    package func copySource(
        in directory: DataDirectory, report: @escaping @Sendable (StoreEvent) -> Void
    ) throws(StoreOpenError) -> any CopySource {
        var own = self
        let target = try target()
        if let isSealed = try PostgresCopySource.isSealed(target, postgres.durability) {
            own.options.isSealed = isSealed
        }
        return try PostgresCopySource(target, postgres.durability, try own.keys(report: report))
    }

    package func copyTarget(
        in directory: DataDirectory, report: @escaping @Sendable (StoreEvent) -> Void
    ) throws(StoreOpenError) -> any CopyTarget {
        try PostgresCopyTarget(try target(), postgres.durability) { () throws(StoreOpenError) in
            try keys(report: report)
        }
    }

    /// Opens the store as a command does, for its keys.
    private func keys(report: @escaping @Sendable (StoreEvent) -> Void) throws(StoreOpenError) -> PostgresKeys {
        let store = try open(Upkeep.Times(), report: report)
        defer { store.close() }
        return PostgresKeys(sealing: store.state.sealing, versions: store.state.versions)
    }
}

/// Makes the tables in the database that a URL names.
struct PostgresMigrator: SchemaMigrator {
    private let postgres: PostgresOptions
    /// Which indexes are needed.
    private let retention: Retention

    init(_ postgres: PostgresOptions, _ retention: Retention) {
        (self.postgres, self.retention) = (postgres, retention)
    }

    /// How long the primary is looked for.
    private static let searchTime = Duration.seconds(30)

    func migrate(serverRole: String?) throws(StoreOpenError) -> SchemaMigration {
        let target: ConnectionTarget
        do throws(PostgresError) {
            target = try ConnectionTarget(url: postgres.url, password: postgres.password)
        } catch {
            throw StoreOpenError(error)
        }
        // Whether the database keeps what it acknowledges is asked by the servers, with their role.
        let sessions = PrimarySessions(target, .local)
        defer { sessions.close() }
        let outcome = try sessions.performOpening(.writing, within: Self.searchTime) {
            (session, _) throws(PostgresError) -> Result<SchemaMigration, SchemaFault> in
            let migrator = Migrator(session)
            do throws(SchemaFault) {
                return .success(try migrate(migrator, serverRole))
            } catch {
                // Those of the connection may be repeated.
                if case .database(let error) = error { throw error }
                return .failure(error)
            }
        }
        switch outcome {
        case .success(let migration): return migration
        case .failure(let fault): throw StoreOpenError(fault)
        }
    }

    private func migrate(_ migrator: Migrator, _ serverRole: String?) throws(SchemaFault) -> SchemaMigration {
        let isNew = try migrator.makeTables()
        try migrator.makeIndexes(for: retention)
        var grantedTo: String?
        if let serverRole, try migrator.grant(to: serverRole) { grantedTo = serverRole }
        return SchemaMigration(version: Schema.version, isNew: isNew, grantedTo: grantedTo)
    }
}
#endif
