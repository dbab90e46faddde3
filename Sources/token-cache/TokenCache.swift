import ArgumentParser

/// The `token-cache` command.
@main
struct TokenCache: AsyncParsableCommand {
    static let version = "0.1.0"

    static let configuration = CommandConfiguration(
        commandName: "token-cache",
        abstract: "Keeps login tokens by unique id, in the place of Facebook's sample token.php.",
        discussion: """
            EXAMPLES
              token-cache serve
              token-cache serve --listen 0.0.0.0:8080 --data-directory /var/lib/token-cache
              token-cache serve --config /etc/token-cache/token-cache.yaml
              token-cache check-config --config /etc/token-cache/token-cache.yaml
              curl -d unique_id=me -d token_info=hello http://127.0.0.1:8080/token
              curl 'http://127.0.0.1:8080/token?unique_id=me'
            """,
        version: version,
        subcommands: [Serve.self, CheckConfig.self, Health.self, Diagnose.self],
        groupedSubcommands: [
            CommandGroup(name: "Tokens", subcommands: [Get.self, Put.self, Delete.self, List.self]),
            CommandGroup(
                name: "Store",
                subcommands: [
                    Stats.self, Verify.self, Backup.self, Restore.self, Keys.self, Rekey.self, Seal.self, Unseal.self,
                    Import.self, Export.self,
                ]
            ),
        ]
    )

    static func main() async {
        // Before anything is opened.
        StandardOutput.reserve()
        await main(nil)
    }
}
