import ArgumentParser
import Settings
import TokenService

/// The command `token-cache access keys`.
struct AccessKeys: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "keys",
        abstract: "Show, make and remove the API keys of an app's server.",
        discussion: """
            They are in the file that access.api.keys_file names, as hashes. A running server reads the file again within \
            two seconds of a change; none needs to run.

            EXAMPLES
              token-cache access keys add backend --scope sessions > backend.key
              token-cache access keys list
              token-cache access keys remove backend
            """,
        subcommands: [ListBearerKeys<APIScope>.self, AddBearerKey<APIScope>.self, RemoveBearerKey<APIScope>.self],
        defaultSubcommand: ListBearerKeys<APIScope>.self
    )
}

extension APIScope: CommandKeyScope {
    static func path(_ settings: Settings) -> String { settings.access.apiKeysFile }
    static var examplePath: String { "/var/lib/token-cache/api-keys" }
    static var examplesOfAdding: String {
        """
          token-cache access keys add backend --scope sessions > backend.key
          token-cache access keys add support --scope tokens:read --expires 90d
        """
    }
}
