#if PostgreSQL
internal import System
internal import TokenStore

/// Makes and changes the tables in the database that a URL names.
struct PostgresMigrator: SchemaMigrator {
    private let postgres: PostgresOptions
    /// Which indexes are needed.
    private let retention: Retention

    init(_ postgres: PostgresOptions, _ retention: Retention) {
        (self.postgres, self.retention) = (postgres, retention)
    }

    /// How long the primary is looked for.
    private static let searchTime = Duration.seconds(30)

    func migrate(contracts: Bool, serverRole: String?) throws(StoreOpenError) -> SchemaMigration {
        let target: ConnectionTarget
        do throws(PostgresError) {
            target = try ConnectionTarget(url: postgres.url, password: postgres.password)
        } catch {
            throw StoreOpenError(error)
        }
        // Whether the database keeps what it acknowledges is asked by the servers, with their role.
        let sessions = PrimarySessions(target, .local)
        defer { sessions.close() }
        let outcome = try StoreClaim.asking(sessions, .writing, within: Self.searchTime) {
            (session, _) throws(PostgresError) -> Result<SchemaMigration, SchemaFault> in
            let migrator = Migrator(session)
            do throws(SchemaFault) {
                return .success(try migrate(migrator, contracts, serverRole))
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

    private func migrate(
        _ migrator: Migrator, _ contracts: Bool, _ serverRole: String?
    ) throws(SchemaFault) -> SchemaMigration {
        let former = try migrator.row()?.schemaVersion ?? 0
        if let row = try migrator.row(), let fault = SchemaCheck.fault(of: row) {
            // What is older is what this is for.
            if case .newer = fault { throw fault }
        }
        try migrator.expand()
        try migrator.makeIndexes(for: retention)
        if contracts { try migrator.contract() }
        var grantedTo: String?
        if let serverRole, try migrator.grant(to: serverRole) { grantedTo = serverRole }
        let version = try migrator.row()?.schemaVersion ?? 0
        let older = try migrator.servers(before: version)
        return SchemaMigration(
            formerVersion: former, version: version, programVersion: Migration.current,
            uncontracted: try migrator.uncontracted(),
            olderServers: older.map {
                SchemaMigration.Server(name: $0.name, version: $0.version, schemaVersion: $0.schemaVersion)
            }, grantedTo: grantedTo)
    }
}
#endif
