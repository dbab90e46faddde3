#if PostgreSQL
internal import System
internal import TokenStore

/// Makes the tables in the database that a URL names, with a role that owns them or may make them.
struct PostgresMigrator: SchemaMigrator {
    private let postgres: PostgresOptions
    /// Which indexes are needed.
    private let retention: Retention

    init(_ postgres: PostgresOptions, _ retention: Retention) {
        (self.postgres, self.retention) = (postgres, retention)
    }

    /// How long the primary is looked for.
    private static let searchTime = Duration.seconds(30)

    func migrate() throws(StoreOpenError) -> SchemaMigration {
        // Whether the database keeps what it acknowledges is asked by the servers, with their role.
        var own = postgres
        own.durability = .local
        let connections = PrimaryConnections(own)
        defer { connections.close() }
        return try connections.performOpening(within: Self.searchTime) { (connection) throws(PostgresError) in
            // An index of a large table takes hours.
            let patient = connection.until(.now + Nanoseconds(.seconds(86_400)))
            let isNew = try Schema.makeTables(patient)
            try Schema.makeIndexes(for: retention, patient)
            return SchemaMigration(version: Schema.version, isNew: isNew)
        }
    }
}

extension Schema {
    /// Makes the tables, all or none of them, if there are none; a second process that does the same waits for the first.
    ///
    /// - Parameter connection: One in which no transaction is open.
    /// - Returns: Whether there were none.
    static func makeTables(_ connection: BlockingConnection) throws(PostgresError) -> Bool {
        let former = try owning(connection) { () throws(PostgresError) in
            try connection.transaction { () throws(PostgresError) in
                // The number stands for nothing else in the database.
                try connection.run("SELECT pg_advisory_xact_lock(7237954630846571877)")
                let former = try StoreRow.read(from: connection)
                if former == nil {
                    for statement in statements { try connection.run(statement) }
                }
                return former
            }
        }
        if let former, let fault = fault(of: former) { throw .unexpected(fault) }
        return former == nil
    }

    /// Makes the indexes that a retention needs; takes long on a large table, while servers go on writing.
    static func makeIndexes(for retention: Retention, _ connection: BlockingConnection) throws(PostgresError) {
        try owning(connection) { () throws(PostgresError) in
            for index in RetentionIndex.needed(by: retention) where try !index.isThere(connection) {
                try connection.run(index.removal)
                try connection.run(index.creation)
            }
        }
    }

    /// Runs statements that only the tables' owner may run.
    private static func owning<Value>(
        _ connection: BlockingConnection, _ body: () throws(PostgresError) -> Value
    ) throws(PostgresError) -> Value {
        do throws(PostgresError) {
            return try body()
        } catch {
            guard error.state == .noPrivilege else { throw error }
            throw .unexpected(
                """
                the role \(try connection.role()) may not make the tables (\(error)): run token-cache migrate --url with the role \
                that owns them (deploy/postgresql/roles.sql makes it)
                """)
        }
    }

    /// Throws unless a server of this program's version can work with the tables, and the connection's role with their rows.
    ///
    /// - Parameter connection: One of the server's role.
    static func check(_ connection: BlockingConnection) throws(PostgresError) -> StoreRow {
        let row: StoreRow?
        do throws(PostgresError) {
            row = try StoreRow.read(from: connection)
        } catch {
            guard error.state == .noPrivilege else { throw error }
            row = nil
            try checkPrivileges(connection)
        }
        guard let row else {
            let database = try connection.run("SELECT current_database()::text").text(0, 0)
            throw .unexpected(
                """
                the database \(database) on \(connection.postgres.address) has no tables of token-cache, or this role may not see \
                them (its search_path, USAGE on their schema): make them with token-cache migrate, as a role that may make \
                tables (deploy/postgresql/roles.sql makes the roles)
                """)
        }
        if let fault = fault(of: row) { throw .unexpected(fault) }
        try checkPrivileges(connection)
        return row
    }

    /// What is wrong with the version of the tables; nil if nothing is.
    static func fault(of row: StoreRow) -> String? {
        guard row.schemaVersion != version else { return nil }
        return """
            the database has schema \(row.schemaVersion), and this version of token-cache reads and writes schema \(version) only: \
            run the version that made it, or take its tokens over (token-cache export with that version, token-cache import with \
            this one, into a new database); nothing was changed
            """
    }

    /// Throws unless the connection's role may read and change the rows of all tables.
    private static func checkPrivileges(_ connection: BlockingConnection) throws(PostgresError) {
        let tables = ["token", "session", "sealing_key", "store"]
        let privileges = ["SELECT", "INSERT", "UPDATE", "DELETE"]
        let wanted = tables.flatMap { table in privileges.map { (table, $0) } }
        let questions = wanted.map { "has_table_privilege('\($0)', '\($1)')" }.joined(separator: ", ")
        let result = try connection.run("SELECT \(questions)")
        let missing = wanted.indices.filter { result.integer(0, $0) == 0 }.map { "\(wanted[$0].1) on \(wanted[$0].0)" }
        guard !missing.isEmpty else { return }
        let role = try connection.role()
        throw .unexpected(
            """
            the role \(role) lacks privileges (\(missing.joined(separator: ", "))): as the tables' owner, run GRANT \
            \(privileges.joined(separator: ", ")) ON \(tables.joined(separator: ", ")) TO "\(role)"; for tables that the owner \
            of deploy/postgresql/roles.sql makes after it was run, PostgreSQL does so by itself
            """)
    }
}

extension BlockingConnection {
    /// The name of the role in which this connection's statements run.
    func role() throws(PostgresError) -> String { try run("SELECT current_user::text").text(0, 0) }
}
#endif
