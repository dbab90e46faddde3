#if PostgreSQL
internal import System
internal import TokenStore

/// Makes the tables, on a connection to the primary whose role owns them.
///
/// Two that run at once do not disturb each other: the second waits for the first.
struct Migrator {
    private let connection: BlockingConnection

    /// - Parameter connection: One in which no transaction is open.
    init(_ connection: BlockingConnection) {
        // An index of a large table takes hours.
        self.connection = connection.until(.now + Nanoseconds(.seconds(86_400)))
    }

    /// Makes all that is missing.
    ///
    /// - Parameters:
    ///   - retention: Which indexes are needed.
    ///   - serverRole: Gets what a server needs.
    func migrate(for retention: Retention, serverRole: String?) throws(SchemaFault) -> SchemaMigration {
        let isNew = try makeTables()
        try makeIndexes(for: retention)
        let isGranted = if let serverRole { try grant(to: serverRole) } else { false }
        return SchemaMigration(version: Schema.version, isNew: isNew, grantedTo: isGranted ? serverRole : nil)
    }

    /// Makes the tables, all or none of them, if there are none.
    ///
    /// - Returns: Whether there were none.
    func makeTables() throws(SchemaFault) -> Bool {
        let former = try owning { () throws(PostgresError) in
            try connection.transaction { () throws(PostgresError) in
                // Waits for another process that does the same. The number stands for nothing else in the database.
                try connection.run("SELECT pg_advisory_xact_lock(7237954630846571877)")
                let former = try StoreRow.read(from: connection)
                if former == nil {
                    for statement in Schema.statements { try connection.run(statement) }
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
            for index in RetentionIndex.needed(by: retention) where try !index.isThere(connection) {
                try connection.run(index.removal)
                try connection.run(index.creation)
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
        do throws(PostgresError) {
            return try connection.run("SELECT current_user::text").text(0, 0)
        } catch {
            throw .database(error)
        }
    }

    /// Gives the servers' role what it needs; does nothing if that is the connection's own.
    ///
    /// - Returns: Whether it is another role.
    func grant(to server: String) throws(SchemaFault) -> Bool {
        let role = try role()
        guard server != role else { return false }
        do throws(PostgresError) {
            try TablePrivileges.grant(to: server, on: connection)
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

/// Whether a server of this program's version can work with the tables of a database.
enum SchemaCheck {
    /// Looks at the tables, and at what a role may do with them.
    ///
    /// - Parameter connection: One of the server's role.
    static func look(_ connection: BlockingConnection) throws(PostgresError) -> Result<StoreRow, SchemaFault> {
        let names = try connection.run("SELECT current_user::text, current_database()::text")
        let role = names.text(0, 0)
        let row: StoreRow?
        do throws(PostgresError) {
            row = try StoreRow.read(from: connection)
        } catch {
            guard error.state == .noPrivilege else { throw error }
            return .failure(.privileges(role: role, missing: try TablePrivileges.missing(for: connection)))
        }
        guard let row else {
            return .failure(.missing(place: "the database \(names.text(0, 1)) on \(connection.postgres.address)"))
        }
        if let fault = fault(of: row) { return .failure(fault) }
        let missing = try TablePrivileges.missing(for: connection)
        return missing.isEmpty ? .success(row) : .failure(.privileges(role: role, missing: missing))
    }

    /// What is wrong with the version of the tables; nil if nothing is.
    static func fault(of row: StoreRow) -> SchemaFault? {
        row.schemaVersion == Schema.version ? nil : .otherVersion(row.schemaVersion)
    }
}

/// Why the tables of a database cannot be used or made; says what to do about it.
enum SchemaFault: Error, Hashable, CustomStringConvertible {
    /// There are none.
    case missing(place: String)
    /// Another version of the program has made them.
    case otherVersion(Int)
    /// The server's role may not do everything that a server does.
    case privileges(role: String, missing: [String])
    /// The role may not make tables.
    case owner(role: String, reason: String)
    /// The role that is to be granted the privileges of a server does not exist.
    case unknownRole(String)
    case database(PostgresError)

    private static let roles = "deploy/postgresql/roles.sql makes the roles"

    var description: String {
        switch self {
        case .missing(let place):
            """
            \(place) has no tables of token-cache, or this role may not see them (its search_path, USAGE on their schema): make them with \
            token-cache migrate, as a role that may make tables (\(Self.roles))
            """
        case .otherVersion(let version):
            """
            the database has schema \(version), and this version of token-cache reads and writes schema \(Schema.version) only: run \
            the version that made it, or take its tokens over (token-cache export with that version, token-cache import with this \
            one, into a new database); nothing was changed
            """
        case .privileges(let role, let missing):
            """
            the role \(role) lacks privileges: \(missing.joined(separator: ", ")); run token-cache migrate --server-role \
            \(role) as the tables' owner, which grants what a server needs (\(Self.roles))
            """
        case .owner(let role, let reason):
            """
            the role \(role) may not make the tables (\(reason)): run token-cache migrate --url with the role that owns \
            them (\(Self.roles))
            """
        case .unknownRole(let role):
            "there is no role \(role), which the servers are to use: \(Self.roles), or name another one with --server-role"
        case .database(let error): "\(StoreFault(error))"
        }
    }
}

extension StoreOpenError {
    init(_ fault: SchemaFault) {
        switch fault {
        case .database(let error): self.init(error)
        default: self = .store(StoreFault("\(fault)"))
        }
    }
}
#endif
