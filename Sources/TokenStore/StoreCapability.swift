/// What only some stores can do.
package enum StoreCapability: CaseIterable, Sendable {
    case backup, restore, keys, verification, limits, migration, preloading

    /// For an operator who asks for it, when the store at hand cannot do it.
    package var absence: String {
        switch self {
        case .backup:
            """
            this store cannot be backed up by token-cache; use the tools of its database, for PostgreSQL pg_basebackup or \
            pgBackRest
            """
        case .restore:
            """
            this store cannot be restored by token-cache; use the tools of its database, for PostgreSQL pgBackRest or a copy \
            that pg_basebackup has made
            """
        case .keys: "this store has no key ring that token-cache can change"
        case .verification:
            "this store cannot be verified by token-cache; use the tools of its database, for PostgreSQL pg_amcheck"
        case .migration:
            """
            this store needs no migration. For a PostgreSQL database set \
            store.url, or name it with --url
            """
        case .preloading:
            """
            store.preload has no effect on this store; use the tools of its database, for PostgreSQL pg_prewarm, which can also \
            keep its memory over a restart (autoprewarm)
            """
        case .limits:
            "this store cannot limit its size; unset store.max_tokens and store.max_bytes, and set a limit in its database"
        }
    }
}
