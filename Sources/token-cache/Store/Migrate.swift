import ArgumentParser
import Operations
import TokenStore

/// The command `token-cache migrate`.
struct Migrate: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Make the tables of the PostgreSQL database of store.url; servers never do.",
        discussion: """
            Run it before the first start, and again to grant another role what servers need, or for the index of a retention. \
            It changes nothing in tables that are there, may be interrupted and run again at any point, and refuses tables of \
            another version.

            The role of --url must own the tables, or be allowed to make them; that of the servers need not. Its password comes \
            from PGPASSWORD or libpq's password file, never from the URL. deploy/postgresql/roles.sql makes both roles.

            EXAMPLES
              token-cache migrate --url postgresql://token_cache_owner@db1,db2/tokens --server-role token_cache
              token-cache migrate --config /etc/token-cache/token-cache.yaml
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

    @OptionGroup var configuration: ConfigurationOptions
    @OptionGroup var output: OutputOptions

    func run() async throws {
        let settings = try configuration.load()
        let migration: SchemaMigration
        do throws(StoreAccess.Failure) {
            migration = try StoreAccess.migrate(settings, url: url, serverRole: serverRole)
        } catch {
            throw configuration.fault("\(error)")
        }
        try output.print(migration, Self.lines(migration).joined(separator: "\n"))
    }

    private static func lines(_ migration: SchemaMigration) -> [String] {
        let version = migration.version
        var lines = [
            migration.isNew
                ? "the tables are made, with schema \(version)"
                : "the tables have schema \(version), as this version needs"
        ]
        if let role = migration.grantedTo { lines.append("the role \(role) has what servers need") }
        return lines
    }
}
