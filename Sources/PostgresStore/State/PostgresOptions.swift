#if PostgreSQL
package import Cryptography
package import TokenStore

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
        requestLimit: Int, durability: StoreDurability
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
