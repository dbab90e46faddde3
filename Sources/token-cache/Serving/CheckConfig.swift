import ArgumentParser
import Operations
import Settings
import TokenStore

/// The command `token-cache check-config`.
struct CheckConfig: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Check the settings and print those in effect, without serving.",
        discussion: """
            EXAMPLES
              token-cache check-config --config token-cache.yaml
            """
    )

    @OptionGroup var addresses: ListenOptions
    @OptionGroup var options: ConfigurationOptions

    func run() async throws {
        let settings = try options.load(listen: addresses.listen)
        do throws(StoreOpenError) {
            try StoreSelection.check(settings)
        } catch {
            throw options.fault("\(error)")
        }
        try StandardOutput.print(settings.listing)
    }
}
