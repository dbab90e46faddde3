#if PostgreSQL
internal import Glibc
internal import System
internal import TokenStore

/// Makes and changes the tables, on a session with the primary whose role owns them.
///
/// Two that run at once do not disturb each other: the second waits for the first.
struct Migrator {
    private let session: BlockingSession
    private let migrations: [Migration]
    /// Seconds since 1970.
    private let now: () -> Int64

    /// - Parameters:
    ///   - session: Outside of a transaction.
    ///   - migrations: All that there are, in their order.
    ///   - now: The time in seconds since 1970.
    init(
        _ session: BlockingSession, migrations: [Migration] = Migration.all,
        now: @escaping () -> Int64 = { Int64(time(nil)) }
    ) {
        (self.session, self.migrations, self.now) = (session, migrations, now)
    }

    /// How long a statement may take: an index of a large table takes hours.
    private static let statementTime = Nanoseconds(.seconds(86_400))
    /// How long a statement waits for a table that others use; short, as their statements queue behind it meanwhile.
    private static let lockTime = "2s"
    /// How often a statement that has not got its lock is tried.
    private static let attempts = 30

    private var deadline: MonotonicTime { .now + Self.statementTime }

    /// The version that the migrations lead to.
    private var newest: Int { migrations.last?.version ?? 0 }

    /// The row that tells the versions; nil if there are no tables yet.
    func row() throws(SchemaFault) -> StoreRow? {
        try SchemaFault.asking { () throws(PostgresError) in try StoreRow.read(from: session, until: deadline) }
    }

    /// Brings the tables to the newest version, beside which servers of the version before go on working.
    ///
    /// A database without tables gets them without what is contracted later.
    func expand() throws(SchemaFault) {
        let isNew = try row() == nil
        for migration in migrations where try (row()?.schemaVersion ?? 0) < migration.version {
            if !isNew { try refuseServers(before: migration.worksWith) }
            try change(
                migration.expansion, before: migration.version, schema: migration.version,
                oldest: migration.worksWith)
        }
        if isNew { try contract() }
    }

    /// Makes the indexes that a retention needs; takes long on a large table, while servers go on writing.
    func makeIndexes(for retention: Retention) throws(SchemaFault) {
        do throws(PostgresError) {
            for index in RetentionIndex.needed(by: retention)
            where try !index.isThere(session, until: deadline) {
                try session.run(index.removal, until: deadline)
                try session.run(index.creation, until: deadline)
            }
        } catch {
            if error.state == .noPrivilege { throw .owner(role: try role(), reason: "\(error)") }
            throw .database(error)
        }
    }

    /// Versions whose old form is still there.
    func uncontracted() throws(SchemaFault) -> [Int] {
        guard let row = try row() else { return [] }
        return pending(row).map(\.version)
    }

    private func pending(_ row: StoreRow) -> [Migration] {
        migrations.filter { migration in
            row.oldestSchema < migration.version && migration.version <= row.schemaVersion
                && !migration.contraction.isEmpty
        }
    }

    /// Removes the old form of what was changed; refused while a server runs that needs it.
    func contract() throws(SchemaFault) {
        guard let row = try row() else { return }
        for migration in pending(row) {
            try refuseServers(before: migration.version)
            // First, so that no server of an earlier version starts from here on. One that has started meanwhile is seen by the
            // second look, as servers register before they read the row.
            try setOldest(migration.version)
            do throws(SchemaFault) {
                try refuseServers(before: migration.version)
            } catch {
                try setOldest(row.oldestSchema)
                throw error
            }
            try change(migration.contraction, before: nil, schema: migration.version, oldest: migration.version)
        }
    }

    /// The servers that run now, or have until a minute ago, with an earlier version of the schema than a given one.
    func servers(before version: Int) throws(SchemaFault) -> [RegisteredServer] {
        let servers = try SchemaFault.asking { () throws(PostgresError) in
            try RegisteredServer.all(from: session, until: deadline)
        }
        let now = now()
        return servers.filter { $0.schemaVersion < version && $0.isRunning(at: now) }
    }

    private func refuseServers(before version: Int) throws(SchemaFault) {
        let servers = try servers(before: version)
        guard servers.isEmpty else { throw .oldServers(servers, at: now()) }
    }

    // MARK: - Statements

    /// Runs statements and notes the versions: as one transaction.
    ///
    /// - Parameters:
    ///   - statements: They may be repeated.
    ///   - version: Nothing is done if another process has brought the tables to it meanwhile.
    ///   - schema: The version of the tables afterwards, at least.
    ///   - oldest: The oldest version of servers afterwards, at least.
    private func change(
        _ statements: [String], before version: Int?, schema: Int, oldest: Int
    ) throws(SchemaFault) {
        let role = try role()
        var attempt = 1
        while true {
            do throws(PostgresError) {
                try session.transaction(until: deadline) { () throws(PostgresError) in
                    try lock()
                    if let version, let row = try StoreRow.read(from: session, until: deadline),
                        row.schemaVersion >= version
                    {
                        return
                    }
                    try run(statements, schema, oldest)
                }
                return
            } catch {
                if error.state == .noPrivilege { throw .owner(role: role, reason: "\(error)") }
                let isBusy = error.state == .lockNotAvailable
                guard isBusy || error.state?.isTransient == true else { throw .database(error) }
                guard attempt < Self.attempts else { throw isBusy ? .busy(seconds: 2 * attempt) : .database(error) }
            }
            attempt += 1
            usleep(UInt32.random(in: 100_000...500_000))
        }
    }

    private func run(_ statements: [String], _ schema: Int, _ oldest: Int) throws(PostgresError) {
        for statement in statements { try session.run(statement, until: deadline) }
        var parameters = Parameters()
        parameters.append(Int64(schema))
        parameters.append(Int64(oldest))
        try session.run(
            """
            UPDATE store SET schema_version = greatest(schema_version, $1::bigint),
                oldest_schema = greatest(oldest_schema, $2::bigint) WHERE one = 1
            """, parameters, until: deadline)
    }

    /// Waits for another process that migrates, and then waits for tables no longer than servers bear.
    private func lock() throws(PostgresError) {
        // The number stands for nothing else in the database; locks end with the transaction.
        try session.run("SELECT pg_advisory_xact_lock(7237954630846571877)", until: deadline)
        try session.run("SET LOCAL lock_timeout = '\(Self.lockTime)'", until: deadline)
    }

    private func setOldest(_ version: Int) throws(SchemaFault) {
        var parameters = Parameters()
        parameters.append(Int64(version))
        try SchemaFault.asking { () throws(PostgresError) in
            try session.run("UPDATE store SET oldest_schema = $1::bigint WHERE one = 1", parameters, until: deadline)
        }
    }

    private func role() throws(SchemaFault) -> String {
        try SchemaFault.asking { () throws(PostgresError) in
            try session.run("SELECT current_user::text", until: deadline) { (result) throws(PostgresError) in
                result.text(0, 0)
            }
        }
    }

    /// Gives the servers' role what it needs; does nothing if that is the session's own.
    ///
    /// - Returns: Whether it is another role.
    func grant(to server: String) throws(SchemaFault) -> Bool {
        let role = try role()
        guard server != role else { return false }
        do throws(PostgresError) {
            try TablePrivileges.grant(to: server, on: session, until: deadline)
            return true
        } catch {
            switch error.state {
            case .missingObject: throw .unknownRole(server)
            case .noPrivilege: throw .owner(role: role, reason: "\(error)")
            default: throw .database(error)
            }
        }
    }
}
#endif
