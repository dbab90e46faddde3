extension Settings {
    /// Refuses settings of the kind of store that is not used: they would have no effect, although an operator relies on them.
    ///
    /// A setting that has its default is not refused, wherever it is given: a file often contains all of them.
    func checkStore() throws(SettingsError) {
        let unused = store.url.isEmpty ? Self.ofDatabase : Self.ofSQLite
        for (key, reason) in unused {
            guard let setting = Setting.all.first(where: { $0.key == key }) else {
                preconditionFailure("there is no setting \(key)")
            }
            let value = setting.show(self)
            guard value != setting.default, Self.harmless[key] != value else { continue }
            throw .contradiction(
                "\(key) is \(value), and store.url is \(store.url.isEmpty ? "empty" : "set"): \(reason)"
            )
        }
    }

    /// Settings without effect on a database, and what takes their place there.
    private static let ofSQLite = [
        (
            "store.max_tokens",
            """
            a database that several servers use cannot be limited here; remove this setting, and give the database a tablespace on \
            a volume of the size that it may have
            """
        ),
        (
            "store.max_bytes",
            """
            a database that several servers use cannot be limited here; remove this setting, and give the database a tablespace on \
            a volume of the size that it may have
            """
        ),
        (
            "store.accept_damaged_wal",
            """
            the database recovers its WAL by itself; remove this setting, and if PostgreSQL cannot start, promote a standby or \
            restore a backup, with pgBackRest for example
            """
        ),
        (
            "store.queue.max_wait",
            "store.timeout takes its place with a database; remove this setting, and set that one"
        ),
        (
            "cache.max_bytes",
            """
            answers are not cached, as other servers may change the tokens; remove this setting, and give the database enough \
            memory instead (shared_buffers)
            """
        ),
    ]

    /// Settings without effect on SQLite.
    private static let ofDatabase = [
        "store.connections", "store.timeout", "store.durability", "store.queue.max_requests",
    ].map { key in
        (
            key,
            """
            it is for a PostgreSQL database, and tokens are stored with SQLite in data_directory; set store.url as well, or remove \
            this setting
            """
        )
    }

    /// Values that say what is so anyway.
    private static let harmless = ["cache.max_bytes": "0"]
}
