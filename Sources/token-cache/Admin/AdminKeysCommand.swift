import ArgumentParser
import Settings
import TokenService

/// The command `token-cache admin keys`.
struct AdminKeysCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "keys",
        abstract: "Show, make and remove the admin keys.",
        discussion: """
            They are in the file that admin.keys_file names, as hashes. A running server reads the file again within two \
            seconds of a change; none needs to run.

            With the scope read, a key is good for what admin.read: key guards (/status, /history, /log, /settings and \
            /metrics); with the scope steer also for /reload, /drain, and to look up and delete tokens.

            EXAMPLES
              token-cache admin keys add anna --scope steer
              token-cache admin keys list
              token-cache admin keys remove anna
            """,
        subcommands: [
            ListBearerKeys<AdminScope>.self, AddBearerKey<AdminScope>.self, RemoveBearerKey<AdminScope>.self,
        ],
        defaultSubcommand: ListBearerKeys<AdminScope>.self
    )
}

extension AdminScope: CommandKeyScope {
    static func path(_ settings: Settings) -> String { settings.admin.keysFile }
    static var examplePath: String { "/var/lib/token-cache/admin-keys" }
    static var examplesOfAdding: String {
        """
          token-cache admin keys add anna --scope steer
          token-cache admin keys add prometheus --scope read > prometheus.key
        """
    }
}
