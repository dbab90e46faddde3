import TokenStore

extension Setting {
    /// Where tokens are stored, how they are encrypted, how large the store may be, and how long it keeps tokens.
    static let storage = [dataDirectory, keyRing] + database + store + retention

    /// The folder of the database.
    package static let dataDirectory = Setting(
        "data_directory", \.dataDirectory, .text("the path of a folder", where: { !$0.isEmpty }),
        takesEffect: .atStart,
        option: "--data-directory",
        """
        The folder with the database. It is created with mode 0700. It must be on a local disk: over a network, a
        lock may not keep other machines out, and data that was synced may not be on the disk. With store.url it has the
        control socket, and the key ring and the audit log's key unless they have a place of their own.
        """
    )

    private static let keyRing = Setting(
        "sealing.key_ring", \.sealing.keyRing, .file,
        takesEffect: .atStart,
        """
        The file with the keys. If empty, it is the systemd credential token-cache.keys if there is one, otherwise the
        file `keys` in the data folder, which the first start creates. Keep it on another disk or as an encrypted
        credential: whoever has the key ring and the database can read the tokens, and without the key ring the tokens
        are lost.
        """
    )

    private static let store = [
        Setting(
            "store.max_bytes", \.store.byteLimit,
            .orOff(
                "a size of at least 1 MiB, such as 512 MiB or 2 GiB",
                { Quantities.bytes($0).flatMap { $0 >= 1 << 20 ? $0 : nil } }, Quantities.text(bytes:)
            ),
            takesEffect: .atStart,
            """
            The largest size of the database. Beyond it, a token with a new id gets 50001, and no session is made. The WAL
            beside the database takes about 8 MiB more. off sets no limit.
            """
        ),
        Setting(
            "cache.max_bytes", \.cacheLimit, .bytes(0...64 << 30), takesEffect: .atStart,
            """
            The memory for answers about recently requested ids; 0 for none. The cache never answers with anything
            older than what the store has.
            """
        ),
    ]

    private static let retention = [
        Setting(
            "retention.after_written", \.retention.afterWritten,
            .retention(atLeast: .seconds(1), example: "90d"),
            """
            Delete a token when it was not written for this long, such as 90d; off keeps tokens forever, as token.php does.

            An expired token is no longer returned, and its row is gone within a day. No token expires for twelve hours after a
            jump of the clock or a stop of more than a day.
            """
        ),
        Setting(
            "retention.after_expired", \.retention.afterExpired,
            .retention(atLeast: .zero, example: "7d"),
            """
            Delete a token this long after the expiration date in it
            (com.facebook.sdk:TokenInformationExpirationDateKey), such as 7d; off keeps it, as does a refresh token
            (TokenCacheClient:RefreshToken).
            """
        ),
    ]
}

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
            The number of connections that each of two event loops keeps to the database of store.url; the other loops use these.
            The database must allow them and two more for each server (max_connections).
            """
        ),
        Setting(
            "store.timeout", \.store.timeout,
            .orWord(
                ["auto"], "a time from 100ms to 3600s, such as 500ms or 20s",
                {
                    Quantities.duration($0).flatMap { (.milliseconds(100) ... .seconds(3_600)).contains($0) ? $0 : nil }
                },
                Quantities.text(_:)
            ),
            takesEffect: .atStart,
            """
            How long a request waits for the store; auto is 10s, and 5s with store.url. Without store.url, it is the time that
            the disk may take for one write: after it the POSTs behind the write get 50001, further ones get it at once, and the
            server is not ready, until the disk answers again. With store.url, a GET then gets 50002, and a POST 50001, also
            while a new primary is being found; at once if 10,000 requests wait already.
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
