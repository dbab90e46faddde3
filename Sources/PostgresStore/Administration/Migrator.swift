#if PostgreSQL
import System
package import TokenStore

extension PostgresStoreProvider {
    /// How long to look for the primary.
    private static let searchTime = Duration.seconds(30)

    /// Makes the tables, as a role that owns them or may make them.
    package func migrate() throws(StoreOpenError) -> SchemaMigration {
        // The settings that make commits durable may differ by role, so the servers check them, with theirs.
        var own = postgres
        own.durability = .local
        let connections = PrimaryConnections(own)
        defer { connections.close() }
        return try connections.performOpening(within: Self.searchTime) { (connection) throws(PostgresError) in
            // An index cannot be dropped before transactions that began earlier have ended.
            let patient = connection.until(.now + .seconds(3_600))
            if let fault = connections.facts?.versionFault { throw fault }
            let isNew = try Schema.makeTables(patient)
            try Schema.dropFormerIndexes(patient)
            return SchemaMigration(version: Schema.version, isNew: isNew)
        }
    }
}

extension Schema {
    /// Makes the tables in one transaction, unless they exist, and brings those of version 1.0 up to date, while servers use them.
    ///
    /// If two processes do this at once, the second waits for the first.
    ///
    /// - Parameter connection: Outside of a transaction.
    /// - Returns: Whether the tables were made.
    static func makeTables(_ connection: BlockingConnection) throws(PostgresError) -> Bool {
        let former = try owning(connection) { () throws(PostgresError) in
            try connection.transaction { () throws(PostgresError) in
                // An arbitrary number, used for no other lock.
                try connection.run("SELECT pg_advisory_xact_lock(7237954630846571877)")
                let former = try StoreRow.read(from: connection)
                if former == nil {
                    for statement in statements { try connection.run(statement) }
                }
                let isKnown = former.map { $0.schemaVersion == version } ?? true
                let check = """
                    SELECT 1 FROM pg_trigger, pg_attribute WHERE tgrelid = 'token'::regclass AND tgname = 'check_key' \
                    AND attrelid = 'store'::regclass AND attname = 'walk'
                    """
                if isKnown, try connection.integer(check) == nil {
                    for statement in additions { try connection.run(statement) }
                }
                return former
            }
        }
        if let former, let fault = fault(of: former) { throw fault }
        return former == nil
    }

    /// Drops indexes that only servers of version 1.0 use, which then read whole tables to delete what has expired.
    static func dropFormerIndexes(_ connection: BlockingConnection) throws(PostgresError) {
        try owning(connection) { () throws(PostgresError) in
            for index in formerIndexes {
                try connection.run("DROP INDEX CONCURRENTLY IF EXISTS \(index)")
            }
        }
    }

    /// Runs statements that only the owner of the tables may run; if the role is another one, the error says so.
    private static func owning<Value>(
        _ connection: BlockingConnection, _ body: () throws(PostgresError) -> Value
    ) throws(PostgresError) -> Value {
        do {
            return try body()
        } catch {
            guard error.state == .noPrivilege else { throw error }
            throw .unexpected(
                """
                the role \(try connection.role()) may not make the tables (\(error.text)): run token-cache migrate --url with the \
                role that owns them; deploy/postgresql/roles.sql, run in this database, makes it and their schema
                """)
        }
    }
}
#endif
