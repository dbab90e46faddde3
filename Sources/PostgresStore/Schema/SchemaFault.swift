#if PostgreSQL
internal import TokenStore

/// Why the tables of a database cannot be used or changed; says what to do about it.
enum SchemaFault: Error, Hashable, CustomStringConvertible {
    /// There are none.
    case missing(place: String)
    /// They are of an earlier version than this program needs.
    case older(found: Int, needed: Int)
    /// They are of a later version that servers of this program's version cannot use any more.
    case newer(found: Int, oldest: Int, known: Int)
    /// The server's role may not do everything that a server does.
    case privileges(role: String, missing: [String])
    /// The role may not make or change tables.
    case owner(role: String, reason: String)
    /// The role that is to be granted the privileges of a server does not exist.
    case unknownRole(String)
    /// Servers run that do not work with what is to be made.
    case oldServers([RegisteredServer], at: Int64)
    /// Others use a table all the time, so that it cannot be changed.
    case busy(seconds: Int)
    case database(PostgresError)

    private static let roles = "deploy/postgresql/roles.sql makes the roles"

    var description: String {
        switch self {
        case .missing(let place):
            """
            \(place) has no tables of token-cache, or this role may not see them (its search_path, USAGE on their schema): make them with \
            token-cache migrate, as a role that may make tables (\(Self.roles))
            """
        case .older(let found, let needed):
            """
            the database has schema \(found), and this version of token-cache needs schema \(needed): run token-cache migrate of \
            this version; servers of the version before go on meanwhile
            """
        case .newer(let found, let oldest, let known):
            """
            the database has schema \(found), which only servers that know schema \(oldest) can use, and this version of \
            token-cache knows schema \(known): run a later version
            """
        case .privileges(let role, let missing):
            """
            the role \(role) lacks privileges: \(missing.joined(separator: ", ")); run token-cache migrate --server-role \
            \(role) as the tables' owner, which grants what a server needs (\(Self.roles))
            """
        case .owner(let role, let reason):
            """
            the role \(role) may not make or change the tables (\(reason)): run token-cache migrate --url with the role that owns \
            them (\(Self.roles))
            """
        case .unknownRole(let role):
            "there is no role \(role), which the servers are to use: \(Self.roles), or name another one with --server-role"
        case .oldServers(let servers, let now):
            """
            servers run that would not work any more: \
            \(servers.map { Self.text(of: $0, at: now) }.joined(separator: ", ")); upgrade or stop them, and try again. \
            One that has crashed counts for \(RegisteredServer.silence) seconds
            """
        case .busy(let seconds):
            """
            a table is used by a long transaction, and could not be locked within \(seconds) seconds: end that \
            (pg_stat_activity shows it), and try again; nothing was changed
            """
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

    private static func text(of server: RegisteredServer, at now: Int64) -> String {
        """
        \(server.name) (token-cache \(server.version), schema \(server.schemaVersion), seen \(max(0, now - server.seenAt)) \
        seconds ago)
        """
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
