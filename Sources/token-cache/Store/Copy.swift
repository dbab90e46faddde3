import ArgumentParser
import Operations
import Settings
import System
import TokenStore

/// The command `token-cache copy`.
struct Copy: StoreCommand {
    static let configuration = CommandConfiguration(
        commandName: "copy",
        abstract: "Copy a store to an empty folder or database, also one that version 1.0 has not encrypted.",
        discussion: """
            Tokens and sessions are copied with their times and versions, and read again to verify them. The copy is sealed \
            (encrypted), also if version 1.0 has stored the source in the clear. Its key ring is that of sealing.key_ring or, if \
            that is empty, the file keys in its folder, which is made if it is missing. For a database, this is data_directory \
            or, if no key ring is there, the folder of the other store.

            Stop the server that uses a data folder before you copy it. A database may be in use: its state at one moment is copied. \
            A copy into a database that was interrupted continues when it is run again, if the source has not changed; until it is \
            complete, no server uses the database. A copy into a folder starts again from the beginning.

            EXAMPLES
              token-cache copy --from /var/lib/token-cache --to /var/lib/token-cache.new
              token-cache copy --from ./data --to postgresql://token_cache@db1,db2/tokens
              token-cache copy --from old.yaml --to new.yaml
            """
    )

    @Option(
        help: ArgumentHelp(
            "A data folder, the URL of a database, or a settings file that names one of them.", valueName: "store"),
        completion: .file())
    var from: String

    @Option(
        help: ArgumentHelp("The same: a folder without a store, or a database with empty tables.", valueName: "store"),
        completion: .file())
    var to: String

    @Flag(help: "Leave out rows that cannot be read or decrypted; the exit status is 1 then.")
    var skipUnreadable = false

    @OptionGroup var options: StoreCommandOptions

    func run() async throws {
        let (from, to) = (try CopyPlace(from), try CopyPlace(to))
        let began = MonotonicTime.now
        let target = try settings(of: to, beside: from)
        let summary = try await copied(from: try settings(of: from, beside: to), to: target)
        let seconds = Int64((MonotonicTime.now - began).count / 1_000_000_000)
        try options.output.print(summary, summary.text(after: seconds, sealedWith: StoreAccess.keyRingPath(target)))
        if !summary.isComplete { throw ExitCode.failure }
    }

    private func settings(of place: CopyPlace, beside other: CopyPlace) throws -> Settings {
        var configuration = options.configuration
        if case .settings(let path) = place { (configuration.config, configuration.dataDirectory) = (path, nil) }
        return try place.naming(in: try configuration.load(), beside: other)
    }

    private func copied(from source: Settings, to target: Settings) async throws -> CopySummary {
        let bars = StoreCopy.Stage.allCases.map { ($0, ProgressBar($0.rawValue)) }
        defer { for (_, bar) in bars { bar.finish() } }
        return try await StoreAccess.copy(
            from: source, to: target, skipsUnreadable: skipUnreadable, logger: options.logger
        ) { stage, progress in
            for case (stage, let bar) in bars { bar.show(progress) }
        }
    }
}

extension CopySummary {
    fileprivate func text(after seconds: Int64, sealedWith keyRing: String) -> String {
        var lines = [
            """
            \(Text.count(copied.tokens, "token")) and \(Text.count(copied.sessions, "session")) copied and verified in \
            \(Text.age(seconds))
            """,
            "the copy is sealed with the key ring \(keyRing)",
        ]
        if let moment {
            lines.append("as of \(Text.time(moment)); what servers have stored since is not in the copy")
        }
        for (reason, count) in unreadable.sorted(by: { $0.key < $1.key }) {
            lines.append("\(Text.count(count, "row")) left out: \(reason)")
        }
        if erasedUsers > 0 { lines.append("left out \(Text.count(erasedUsers, "user")) that had been erased") }
        if endedSessions > 0 {
            let reason = "of a backup, as some may have been revoked since, or of erased users"
            lines.append("ended \(Text.count(endedSessions, "session")): \(reason)")
        }
        if let wrongCount {
            lines.append(
                """
                the source's own count is \(Text.count(wrongCount.tokens, "token")) and \
                \(Text.count(wrongCount.sessions, "session")): rows may be lost; see token-cache verify
                """)
        }
        return lines.joined(separator: "\n")
    }
}

/// The command `token-cache migrate`.
struct Migrate: ConfiguredCommand {
    static let configuration = CommandConfiguration(
        commandName: "migrate",
        abstract: "Make the tables of the PostgreSQL database of store.url, which servers never make.",
        discussion: """
            Run it before the first start, and after an upgrade, while servers run. It may be interrupted and run again at any \
            point, and refuses tables of a later version.

            The role of --url must own the tables, or be allowed to make them; the servers' role need not. Its password comes \
            from PGPASSWORD or libpq's password file, never from the URL. deploy/postgresql/roles.sql makes both roles.

            EXAMPLES
              token-cache migrate --url postgresql://token_cache_owner@db1,db2/tokens
              token-cache migrate --config /etc/token-cache/token-cache.yaml
            """
    )

    @Option(help: "The database and the role that owns its tables. (default: store.url)")
    var url: String?

    @OptionGroup var configuration: ConfigurationOptions
    @OptionGroup var output: OutputOptions

    func run() async throws {
        let migration = try StoreAccess.migrate(try configuration.load(), url: url)
        let version = migration.version
        try output.print(
            migration,
            migration.isNew
                ? "the tables are made, with schema \(version)"
                : "the tables have schema \(version), as this version needs")
    }
}
