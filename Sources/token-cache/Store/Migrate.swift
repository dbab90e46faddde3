import ArgumentParser
import Operations
import TokenStore

/// The command `token-cache migrate`.
struct Migrate: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Make or change the tables of the PostgreSQL database of store.url; servers never do.",
        discussion: """
            Run it once before the first start, and before servers of a new version start: those of the version before go on \
            working. Their former form of the tables stays until no server needs it any more; then --contract removes it. It \
            may be interrupted and run again at any point.

            The role of --url must own the tables, or be allowed to make them; that of the servers need not. Its password comes \
            from PGPASSWORD or libpq's password file, never from the URL. deploy/postgresql/roles.sql makes both roles.

            EXAMPLES
              token-cache migrate --url postgresql://token_cache_owner@db1,db2/tokens --server-role token_cache
              token-cache migrate --config /etc/token-cache/token-cache.yaml
              token-cache migrate --contract --config /etc/token-cache/token-cache.yaml
            """
    )

    @Option(help: "The database and the role that owns its tables. (default: store.url)")
    var url: String?

    @Option(
        help: ArgumentHelp(
            "Grant this role what servers need. (default: the role of store.url, if --url has another one)",
            valueName: "role"
        )
    )
    var serverRole: String?

    @Flag(help: "Also remove what only servers of earlier versions need; refused while one runs.")
    var contract = false

    @OptionGroup var configuration: ConfigurationOptions
    @OptionGroup var output: OutputOptions

    func run() async throws {
        let settings = try configuration.load()
        let migration: SchemaMigration
        do throws(StoreAccess.Failure) {
            migration = try StoreAccess.migrate(settings, url: url, contracts: contract, serverRole: serverRole)
        } catch {
            throw configuration.fault("\(error)")
        }
        try output.print(migration, Self.lines(migration).joined(separator: "\n"))
    }

    private static func lines(_ migration: SchemaMigration) -> [String] {
        let (former, version) = (migration.formerVersion, migration.version)
        var lines: [String] = []
        if former == 0 {
            lines.append("the tables are made, with schema \(version)")
        } else if former < version {
            lines.append("the tables had schema \(former) and have schema \(version) now")
        } else if version > migration.programVersion {
            lines.append(
                """
                the tables have schema \(version), which is later than the \(migration.programVersion) of this version, and servers of \
                this version work with them
                """)
        } else {
            lines.append("the tables have schema \(version), as this version needs")
        }
        if let role = migration.grantedTo { lines.append("the role \(role) has what servers need") }
        let older = migration.olderServers.map { "\($0.name) (\($0.version), schema \($0.schemaVersion))" }
        if !older.isEmpty { lines.append("running servers of an earlier version: \(older.joined(separator: ", "))") }
        if !migration.uncontracted.isEmpty {
            lines.append(
                """
                what only earlier versions need is still there\(older.isEmpty ? "" : " for these"); when no server needs it, run \
                token-cache migrate --contract
                """)
        }
        return lines
    }
}
