#if PostgreSQL
internal import System

/// Whether a server of this program's version can work with the tables of a database.
enum SchemaCheck {
    /// Looks at the tables, and at what a session's role may do with them.
    ///
    /// - Parameters:
    ///   - session: One of the server's role.
    ///   - deadline: When the answers must be there.
    static func look(
        _ session: BlockingSession, until deadline: MonotonicTime
    ) throws(PostgresError) -> Result<StoreRow, SchemaFault> {
        let (role, database) = try session.run("SELECT current_user::text, current_database()::text", until: deadline) {
            (result) throws(PostgresError) in (result.text(0, 0), result.text(0, 1))
        }
        let row: StoreRow?
        do throws(PostgresError) {
            row = try StoreRow.read(from: session, until: deadline)
        } catch {
            guard error.state == .noPrivilege else { throw error }
            let missing = try TablePrivileges.missing(for: session, until: deadline)
            return .failure(.privileges(role: role, missing: missing))
        }
        guard let row else {
            return .failure(.missing(place: "the database \(database) on \(session.connection.address)"))
        }
        if let fault = fault(of: row) { return .failure(fault) }
        let missing = try TablePrivileges.missing(for: session, until: deadline)
        return missing.isEmpty ? .success(row) : .failure(.privileges(role: role, missing: missing))
    }

    /// What is wrong with the version of the tables; nil if nothing is.
    static func fault(of row: StoreRow) -> SchemaFault? {
        switch row.schemaVersion {
        case Schema.version: nil
        case Schema.unfinished: .unfinished
        default: .otherVersion(row.schemaVersion)
        }
    }
}
#endif
