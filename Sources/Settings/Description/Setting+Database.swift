internal import TokenStore

extension Setting {
    /// The database that several servers share.
    static let database = [
        Setting(
            "store.url", \.store.url, .storeURL, takesEffect: .atStart,
            """
            The PostgreSQL database in which tokens are stored, so that several servers share them; empty for SQLite in
            data_directory. Name all hosts that can become the primary, such as
            postgresql://token_cache@db1,db2/tokens?sslmode=verify-full. A password in it is refused. Needs a token-cache that
            was built with PostgreSQL.

            All parameters of libpq work, and its variables such as PGSSLROOTCERT. The password comes from a file
            (passfile=PATH in the URL, or PGPASSFILE), from PGPASSWORD, or from the systemd credential
            token-cache.postgresql-password.
            """
        ),
        Setting(
            "store.connections", \.store.connections, .number(1...64), takesEffect: .atStart,
            """
            The number of connections that each loop keeps to the database of store.url. The database must allow so many for all
            loops of all servers, and a few more for commands (max_connections).
            """
        ),
        Setting(
            "store.timeout", \.store.timeout, .duration(.milliseconds(100) ... .seconds(60)), takesEffect: .atStart,
            """
            How long a request waits for the database of store.url, also while a new primary is being found. After that a GET gets
            50002, and a POST 50001.
            """
        ),
        Setting(
            "store.durability", \.store.durability, .durability, takesEffect: .atStart,
            """
            What the database of store.url must have done before a write is acknowledged. synchronous: it is on the disk of a
            standby too, and a database that is not set up for this is refused. local: it is on the primary's disk; what could
            lose it is logged. auto is synchronous if store.url has several hosts, otherwise local.
            """
        ),
    ]

    /// How many requests may wait for the database.
    static let requestLimit = Setting(
        "store.queue.max_requests", \.store.requestLimit, .number(1...1_000_000), takesEffect: .atStart,
        """
        The number of requests that may wait for the database of store.url. Beyond it, a GET gets 50002 and a POST 50001 at
        once.
        """
    )
}

extension SettingFormat where Value == StoreDurability? {
    fileprivate static var durability: SettingFormat {
        single(
            (["auto"] + StoreDurability.allCases.map(\.rawValue)).joined(separator: ", "),
            { $0 == "auto" ? .some(nil) : StoreDurability(rawValue: $0).map(Optional.some) },
            { $0?.rawValue ?? "auto" }
        )
    }
}
