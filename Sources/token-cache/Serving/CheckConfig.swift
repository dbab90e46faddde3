import ArgumentParser
import Glibc
import Operations
import Server
import Settings
import System

/// The command `token-cache check-config`.
struct CheckConfig: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Check the settings and the files that they name, and print the settings in effect, without serving.",
        discussion: """
            It refuses what serve refuses: also certificates, keys and folders that are missing or that the server's \
            user cannot use, and addresses that exclude each other or that this machine does not have. Whether ports are free and the \
            store is sound is what token-cache doctor finds.

            It tries everything with the rights of whoever runs it, so run it as the server's user.

            EXAMPLES
              token-cache check-config --config token-cache.yaml
              token-cache check-config --config token-cache.yaml --syntax-only
            """
    )

    @OptionGroup var addresses: ListenOptions
    @OptionGroup var options: ConfigurationOptions

    @Flag(help: "Check only the settings themselves, such as those for another machine.")
    var syntaxOnly = false

    func run() throws {
        let settings = try options.load(listen: addresses.listen)
        do throws(StartError) {
            for remark in try StartCheck.check(settings, isSyntaxOnly: syntaxOnly) { StandardError.print(remark) }
        } catch {
            throw options.fault("\(error)")
        }
        try StandardOutput.print(settings.listing)
    }
}
