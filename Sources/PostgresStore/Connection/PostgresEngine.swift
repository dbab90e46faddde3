#if PostgreSQL
/// The software that speaks PostgreSQL's protocol, and what it can do.
enum PostgresEngine: String, Sendable, CaseIterable {
    case postgresql = "PostgreSQL"
    case citus = "Citus"
    case cockroach = "CockroachDB"
    case yugabyte = "YugabyteDB"
    case aurora = "Aurora"
    case alloy = "AlloyDB"
    case neon = "Neon"
    /// A program that speaks PostgreSQL's protocol and is none of the above; only what all engines can do is used.
    case other = "an unknown engine"

    /// Whether several writes in one transaction cost one commit: rows of one transaction lie on one machine.
    ///
    /// In the others each row may have a leader of its own, and a transaction over several of them takes two rounds between
    /// machines (docs.citusdata.com, "Two-phase commit"; cockroachlabs.com/docs, "Transaction layer"; docs.yugabyte.com, "Transactional I/O").
    var sharesCommits: Bool {
        switch self {
        case .postgresql, .aurora, .alloy, .neon: true
        case .citus, .cockroach, .yugabyte, .other: false
        }
    }

    /// Whether a commit reaches a second machine by PostgreSQL's own replication, which `synchronous_standby_names` rules; the
    /// others replicate below the database, and always wait for that.
    var hasSynchronousStandbys: Bool {
        switch self {
        case .postgresql, .citus, .other: true
        case .cockroach, .yugabyte, .aurora, .alloy, .neon: false
        }
    }

    /// Whether every node takes writes, so that connections are best spread over all of them
    /// (cockroachlabs.com/docs, "Load balancing"; docs.yugabyte.com, "Smart drivers").
    var takesWritesEverywhere: Bool { self == .cockroach || self == .yugabyte }

    /// Whether the data are in files of the server's own machine, which `fsync` and `full_page_writes` protect.
    var hasOwnFiles: Bool { hasSynchronousStandbys }

    /// Whether `synchronous_commit` decides when a commit is acknowledged.
    var heedsSynchronousCommit: Bool { self != .cockroach && self != .yugabyte }

    /// Whether statements that change the schema can be parts of one transaction.
    var hasTransactionalSchema: Bool { hasTableOptions }

    /// Whether `pg_advisory_xact_lock` excludes others.
    ///
    /// CockroachDB has a function of that name that does nothing
    /// (cockroachlabs.com/docs, "PostgreSQL compatibility"), YugabyteDB has had the locks since 2025.1 only.
    var hasAdvisoryLocks: Bool { hasTableOptions }

    /// Whether tables are PostgreSQL's own, with its fill factor, its ways to store long values, and its vacuum.
    var hasTableOptions: Bool {
        switch self {
        case .postgresql, .citus, .aurora, .alloy, .neon: true
        case .cockroach, .yugabyte, .other: false
        }
    }

    /// The engine by what a server says.
    ///
    /// - Parameters:
    ///   - version: What `version()` gives.
    ///   - signs: Names of what only some engines have: extensions, functions, prefixes of settings.
    init(version: String, signs: Set<String>) {
        self =
            if version.hasPrefix("CockroachDB") {
                .cockroach
            } else if version.contains("-YB-") {
                .yugabyte
            } else if !version.hasPrefix("PostgreSQL ") {
                .other
            } else if signs.contains("aurora_version") {
                .aurora
            } else if signs.contains("alloydb") {
                .alloy
            } else if signs.contains("neon") {
                .neon
            } else if signs.contains("citus") {
                .citus
            } else {
                .postgresql
            }
    }
}
#endif
