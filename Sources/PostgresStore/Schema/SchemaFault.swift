#if PostgreSQL
internal import TokenStore

/// Why the tables of a database cannot be used or made; says what to do about it.
enum SchemaFault: Error, Hashable, CustomStringConvertible {
    /// There are none.
    case missing(place: String)
    /// Another version of the program has made them.
    case otherVersion(Int)
    /// Rows are being copied into it, or were until that was interrupted.
    case unfinished
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
        case .unfinished:
            """
            token-cache copy fills this database, or was interrupted: let it end, or run it again, which begins anew; to begin with \
            an empty store instead, drop the tables and run token-cache migrate
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

    /// Runs statements whose errors are faults.
    static func asking<Value>(_ body: () throws(PostgresError) -> Value) throws(SchemaFault) -> Value {
        do throws(PostgresError) {
            return try body()
        } catch {
            throw .database(error)
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
