#if PostgreSQL
internal import CPostgres
package import Cryptography
package import TokenStore

/// A parameter of libpq (postgresql.org/docs/current/libpq-connect.html).
typealias ConnectionParameter = (name: String, value: String)

/// Where the database is, and how to connect to each of its hosts.
struct ConnectionTarget: Sendable {
    /// One of the hosts.
    struct Host: Hashable, Sendable, CustomStringConvertible {
        /// A name, an address, or the folder of a Unix socket; empty for libpq's default.
        let name: String
        /// The address to use in the place of the name's; empty if the name is looked up.
        let address: String
        /// Empty for the default.
        let port: String

        var description: String {
            let name = name.isEmpty ? (address.isEmpty ? "the default host" : address) : name
            return port.isEmpty ? name : "\(name.contains(":") ? "[\(name)]" : name):\(port)"
        }
    }

    let hosts: [Host]
    private let url: String
    private let password: @Sendable () -> SecretText?
    private let given: Set<String>

    /// - Parameters:
    ///   - url: `postgresql://...`, whose parameters go before the variables `PG*` of the environment.
    ///   - password: Reads the password again each time, as it may be changed; nil if libpq is to look for one in its `passfile`
    ///     or the environment.
    init(url: String, password: @escaping @Sendable () -> SecretText?) throws(PostgresError) {
        var parsed = try Self.parse(url)
        given = Set(parsed.keys)
        for (name, value) in Self.defaults() where parsed[name] == nil { parsed[name] = value }
        func list(_ name: String) -> [String] {
            parsed[name].map { $0.split(separator: ",", omittingEmptySubsequences: false).map(String.init) } ?? []
        }
        let (names, addresses, ports) = (list("host"), list("hostaddr"), list("port"))
        let count = max(1, names.count, addresses.count)
        guard ports.count <= 1 || ports.count == count else {
            throw .unexpected(
                "store.url names \(count) hosts and \(ports.count) ports; name one port, or one for each host")
        }
        hosts = (0..<count).map { index in
            Host(
                name: index < names.count ? names[index] : "", address: index < addresses.count ? addresses[index] : "",
                port: ports.count > 1 ? ports[index] : ports.first ?? "")
        }
        self.url = url
        self.password = password
    }

    /// What libpq is told to connect to one host.
    ///
    /// - Parameters:
    ///   - host: One of `hosts`.
    ///   - unanswered: Seconds after which the kernel gives up a connection whose peer acknowledges nothing.
    func parameters(for host: Host, unanswered: Int) -> [ConnectionParameter] {
        var parameters: [ConnectionParameter] = [("dbname", url)]
        // After the URL, and so in the place of what it says.
        if hosts.count > 1 {
            parameters += [("host", host.name), ("hostaddr", host.address), ("port", host.port)]
        }
        // Whether a host takes writes is asked of each.
        parameters.append(("target_session_attrs", "any"))
        parameters.append(("client_encoding", "UTF8"))
        parameters.append(("fallback_application_name", "token-cache"))
        if !given.contains("tcp_user_timeout") { parameters.append(("tcp_user_timeout", "\(unanswered * 1_000)")) }
        if !given.contains("keepalives_idle") { parameters.append(("keepalives_idle", "\(unanswered)")) }
        if let password = password() { parameters.append(("password", password.text)) }
        return parameters
    }

    private static func parse(_ url: String) throws(PostgresError) -> [String: String] {
        var message: UnsafeMutablePointer<CChar>?
        guard let options = unsafe PQconninfoParse(url, &message) else {
            defer { unsafe PQfreemem(message) }
            // The message quotes parts of the URL, in which a password can be.
            throw .unexpected(
                "store.url is not like postgresql://user@host1,host2/tokens?sslmode=verify-full, as libpq reads it")
        }
        defer { unsafe PQconninfoFree(options) }
        return unsafe values(of: options)
    }

    /// The values of the environment, and those that are built in.
    private static func defaults() -> [String: String] {
        guard let options = unsafe PQconndefaults() else { return [:] }
        defer { unsafe PQconninfoFree(options) }
        return unsafe values(of: options)
    }

    @unsafe private static func values(of options: UnsafeMutablePointer<PQconninfoOption>) -> [String: String] {
        var (values, option) = unsafe ([String: String](), options)
        while let keyword = unsafe option.pointee.keyword {
            if let value = unsafe option.pointee.val {
                values[unsafe String(cString: keyword)] = unsafe String(cString: value)
            }
            unsafe option += 1
        }
        return values
    }
}

extension PostgresOptions {
    func target() throws(StoreOpenError) -> ConnectionTarget {
        do throws(PostgresError) {
            return try ConnectionTarget(url: url, password: password)
        } catch {
            throw StoreOpenError(error)
        }
    }
}

/// An operator's settings of the store on PostgreSQL.
package struct PostgresOptions: Sendable {
    /// `postgresql://...`, without a password.
    package var url: String
    /// Reads the password again for each connection, as it may have been changed; nil if libpq is to look for one, in its
    /// `passfile` or the environment.
    package var password: @Sendable () -> SecretText?
    /// Connections of each loop.
    package var connections: Int
    /// How long a request waits for the database.
    package var timeout: Duration
    /// Requests that may wait for the database; further ones fail at once.
    package var requestLimit: Int
    /// Where a write must be on disk before it is acknowledged.
    package var durability: StoreDurability

    package init(
        url: String, password: @escaping @Sendable () -> SecretText?, connections: Int, timeout: Duration,
        requestLimit: Int = 10_000, durability: StoreDurability
    ) {
        self.url = url
        self.password = password
        self.connections = connections
        self.timeout = timeout
        self.requestLimit = requestLimit
        self.durability = durability
    }
}
#endif
