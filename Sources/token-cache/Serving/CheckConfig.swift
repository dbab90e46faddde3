import ArgumentParser
import Operations
import Server
import Settings

/// The command `token-cache check-config`.
struct CheckConfig: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Check the settings and the files that they name, and print the settings in effect, without serving.",
        discussion: """
            It refuses what serve refuses: also certificates, keys and folders that are missing or that this user cannot \
            use, and addresses that exclude each other or that this machine does not have. Whether ports are free and the \
            store is sound, and what the server's user may do, is what token-cache doctor finds.

            EXAMPLES
              token-cache check-config --config token-cache.yaml
              token-cache check-config --config token-cache.yaml --syntax-only
            """
    )

    @OptionGroup var addresses: ListenOptions
    @OptionGroup var options: ConfigurationOptions

    @Flag(help: "Check only the settings themselves, such as those for another machine.")
    var syntaxOnly = false

    func run() async throws {
        let settings = try options.load(listen: addresses.listen)
        do throws(StartError) {
            try StartCheck.check(settings, isSyntaxOnly: syntaxOnly)
        } catch {
            throw options.fault("\(error)")
        }
        try StandardOutput.print(settings.listing)
    }
}
