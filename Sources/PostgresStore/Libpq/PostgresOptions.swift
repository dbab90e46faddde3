#if PostgreSQL
package import Cryptography
package import TokenStore

/// A parameter of libpq (postgresql.org/docs/current/libpq-connect.html).
typealias ConnectionParameter = (name: String, value: String)

/// The settings that say where the database is and how it is used.
package struct PostgresOptions: Sendable {
    /// `postgresql://...`, without a password.
    ///
    /// Its parameters override the environment's variables `PG*`.
    let url: String
    /// The hosts that the URL names; at least one.
    let hosts: [DatabaseHost]
    /// Reads the password, for each connection again, as it may have changed; gives nil if libpq is to find one in its `passfile`
    /// or the environment.
    private let password: @Sendable () -> SecretText?
    /// Connections of each loop that has some.
    var connections: Int
    /// How long a request waits for the database.
    var timeout: Duration
    /// How many requests may wait for the database; further ones fail at once.
    var requestLimit = 10_000
    /// Where a write must be on disk before it is acknowledged.
    var durability: StoreDurability
    /// Whether the store may be opened although a copy has not filled it completely, see `Schema.versionWhileFilled`.
    var fillsStore = false

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

    /// Whether a server must prove by commits that it is the primary; see Fence.
    var needsProof: Bool { durability == .synchronous }

    /// What libpq needs to connect to a host.
    ///
    /// - Parameters:
    ///   - host: One of `hosts`.
    ///   - unanswered: How long the host may acknowledge nothing before the kernel gives up the connection.
    func parameters(for host: DatabaseHost, unanswered: Duration) -> [ConnectionParameter] {
        let seconds = max(1, unanswered.components.seconds)
        // The URL in `dbname` overrides what stands before it, and is overridden by what stands after it.
        var parameters: [ConnectionParameter] = [
            ("tcp_user_timeout", "\(seconds * 1_000)"), ("keepalives_idle", "\(seconds)"), ("dbname", url),
        ]
        if hosts.count > 1 {
            parameters += [("host", host.name), ("hostaddr", host.address), ("port", host.port)]
        }
        // libpq must not choose by role: we ask each host whether it takes writes.
        parameters.append(("target_session_attrs", "any"))
        parameters.append(("client_encoding", "UTF8"))
        parameters.append(("fallback_application_name", "token-cache"))
        if let password = password() { parameters.append(("password", password.text)) }
        return parameters
    }
}
#endif
