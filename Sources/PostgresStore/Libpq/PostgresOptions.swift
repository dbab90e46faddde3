#if PostgreSQL
package import Cryptography
package import TokenStore

/// A parameter of libpq (postgresql.org/docs/current/libpq-connect.html).
typealias ConnectionParameter = (name: String, value: String)

/// Where the database is, and how it is used: an operator's settings.
package struct PostgresOptions: Sendable {
    /// `postgresql://...`, without a password; its parameters go before the variables `PG*` of the environment.
    let url: String
    /// Those of the URL, at least one.
    let hosts: [DatabaseHost]
    /// Reads the password again for each connection, as it may have been changed; nil if libpq is to look for one, in its
    /// `passfile` or the environment.
    private let password: @Sendable () -> SecretText?
    /// Connections of each loop.
    var connections: Int
    /// How long a request waits for the database.
    var timeout: Duration
    /// Requests that may wait for the database; further ones fail at once.
    var requestLimit = 10_000
    /// Where a write must be on disk before it is acknowledged.
    var durability: StoreDurability

    package init(
        url: String, hosts: [DatabaseHost], password: @escaping @Sendable () -> SecretText?, connections: Int,
        timeout: Duration, durability: StoreDurability
    ) {
        self.url = url
        self.hosts = hosts
        self.password = password
        self.connections = connections
        self.timeout = timeout
        self.durability = durability
    }

    /// What libpq is told to connect to one host.
    ///
    /// - Parameters:
    ///   - host: One of `hosts`.
    ///   - unanswered: How long a peer may acknowledge nothing before the kernel gives up the connection.
    func parameters(for host: DatabaseHost, unanswered: Duration) -> [ConnectionParameter] {
        let seconds = max(1, unanswered.components.seconds)
        // What comes before the URL counts unless that says something else.
        var parameters: [ConnectionParameter] = [
            ("tcp_user_timeout", "\(seconds * 1_000)"), ("keepalives_idle", "\(seconds)"), ("dbname", url),
        ]
        if hosts.count > 1 {
            parameters += [("host", host.name), ("hostaddr", host.address), ("port", host.port)]
        }
        // Whether a host takes writes is asked of each.
        parameters.append(("target_session_attrs", "any"))
        parameters.append(("client_encoding", "UTF8"))
        parameters.append(("fallback_application_name", "token-cache"))
        if let password = password() { parameters.append(("password", password.text)) }
        return parameters
    }
}
#endif
