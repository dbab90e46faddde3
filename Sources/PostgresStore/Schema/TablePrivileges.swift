#if PostgreSQL
internal import System

/// What a server's role must be allowed to do with the tables; everything else is the business of the role that migrates.
enum TablePrivileges {
    private static let changing = ["SELECT", "INSERT", "UPDATE", "DELETE"]

    static let all: [(table: String, privileges: [String])] = [
        // DELETE for the retention.
        ("token", changing),
        ("session", changing),
        // DELETE for a key that is retired.
        ("sealing_key", ["SELECT", "INSERT", "DELETE"]),
        ("lease", ["SELECT", "INSERT", "UPDATE"]),
        ("store", ["SELECT", "UPDATE"]),
    ]

    /// What the role of a session lacks, such as `DELETE on token`; empty if it lacks nothing.
    static func missing(
        for session: BlockingSession, until deadline: MonotonicTime
    ) throws(PostgresError) -> [String] {
        let wanted = all.flatMap { table, privileges in privileges.map { (table, $0) } }
        let questions = wanted.map { "has_table_privilege('\($0)', '\($1)')" }.joined(separator: ", ")
        return try session.run("SELECT \(questions)", until: deadline) { (result) throws(PostgresError) in
            wanted.indices.filter { result.integer(0, $0) == 0 }.map { "\(wanted[$0].1) on \(wanted[$0].0)" }
        }
    }

    /// Gives a role what it needs, in the schema in which the session makes its tables.
    ///
    /// - Parameter role: Its name, as PostgreSQL has it.
    static func grant(
        to role: String, on session: BlockingSession, until deadline: MonotonicTime
    ) throws(PostgresError) {
        let name = quoted(role)
        var parameters = Parameters()
        parameters.append(role)
        let (schema, mayUse) = try session.run(
            "SELECT current_schema()::text, has_schema_privilege($1::text, current_schema(), 'USAGE')", parameters,
            until: deadline
        ) { (result) throws(PostgresError) in (result.text(0, 0), result.integer(0, 1) != 0) }
        if !mayUse { try session.run("GRANT USAGE ON SCHEMA \(quoted(schema)) TO \(name)", until: deadline) }
        for (table, privileges) in all {
            try session.run(
                "GRANT \(privileges.joined(separator: ", ")) ON \(table) TO \(name)", until: deadline)
        }
    }

    /// A name as a part of a statement.
    private static func quoted(_ name: String) -> String {
        "\"" + name.replacing("\"", with: "\"\"") + "\""
    }
}
#endif
