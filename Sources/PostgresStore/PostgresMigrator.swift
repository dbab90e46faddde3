#if PostgreSQL
internal import System
internal import TokenStore

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
