import ArgumentParser

/// The command `token-cache backup`.
struct Backup: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Write a consistent copy of the store, even while a server uses it, or verify one.",
        discussion: """
            Without the name of a subcommand this is backup create; write ./verify for a file called verify.

            EXAMPLES
              token-cache backup /var/backups/tokens.db
              token-cache backup --into /var/backups/tokens --keep hourly=24,daily=7,weekly=4
              token-cache backup verify /var/backups/tokens.db
            """,
        subcommands: [BackupCreate.self, BackupVerify.self], defaultSubcommand: BackupCreate.self
    )
}
