#if PostgreSQL
internal import System
internal import TokenStore

/// Makes the tables, on a session with the primary whose role owns them.
///
/// Two that run at once do not disturb each other: the second waits for the first.
struct Migrator {
    private let session: BlockingSession

    /// - Parameter session: Outside of a transaction.
    init(_ session: BlockingSession) {
        self.session = session
    }

    /// How long a statement may take: an index of a large table takes hours.
    private static let statementTime = Nanoseconds(.seconds(86_400))

    private var deadline: MonotonicTime { .now + Self.statementTime }

    /// Makes the tables, all or none of them, if there are none.
    ///
    /// - Returns: Whether there were none.
    func makeTables() throws(SchemaFault) -> Bool {
        let former = try owning { () throws(PostgresError) in
            try session.transaction(until: deadline) { () throws(PostgresError) in
                // Waits for another process that does the same. The number stands for nothing else in the database.
                try session.run("SELECT pg_advisory_xact_lock(7237954630846571877)", until: deadline)
                let former = try StoreRow.read(from: session, until: deadline)
                if former == nil {
                    for statement in Schema.statements { try session.run(statement, until: deadline) }
                }
                return former
            }
        }
        if let former, let fault = SchemaCheck.fault(of: former) { throw fault }
        return former == nil
    }

    /// Makes the indexes that a retention needs; takes long on a large table, while servers go on writing.
    func makeIndexes(for retention: Retention) throws(SchemaFault) {
        try owning { () throws(PostgresError) in
            for index in RetentionIndex.needed(by: retention)
            where try !index.isThere(session, until: deadline) {
                try session.run(index.removal, until: deadline)
                try session.run(index.creation, until: deadline)
            }
        }
    }

    /// Runs statements that only the tables' owner may run.
    private func owning<Value>(_ body: () throws(PostgresError) -> Value) throws(SchemaFault) -> Value {
        do throws(PostgresError) {
            return try body()
        } catch {
            if error.state == .noPrivilege { throw .owner(role: try role(), reason: "\(error)") }
            throw .database(error)
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
