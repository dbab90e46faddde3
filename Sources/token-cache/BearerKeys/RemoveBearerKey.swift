import ArgumentParser
import TokenService

/// The commands such as `token-cache access keys remove`.
struct RemoveBearerKey<Scope: CommandKeyScope>: AsyncParsableCommand {
    static var configuration: CommandConfiguration {
        CommandConfiguration(
            commandName: "remove", abstract: "Remove a key; a running server refuses it within two seconds."
        )
    }

    @Argument(help: "The key's name, as token-cache \(Scope.kind.command) list shows it.")
    var name: String

    @OptionGroup var options: BearerKeyOptions<Scope>

    func run() async throws {
        try options.recordingChange(isAddition: false, name) {
            try options.change { keys in
                guard keys.remove(named: name) == nil else { return }
                throw options.configuration.fault(
                    """
                    there is no \(Scope.kind.name) \(Text.visible(name)); token-cache \(Scope.kind.command) list shows them
                    """
                )
            }
        }
        try StandardOutput.print("the key \(name) is removed; a running server refuses it within two seconds")
    }
}
