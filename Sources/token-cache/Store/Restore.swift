import ArgumentParser
import FoundationEssentials
import Operations
import TokenStore

/// The command `token-cache restore`.
struct Restore: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Replace the store by a backup; the server must be stopped.",
        discussion: """
            The backup is checked first, and every row decrypted with the key ring; if that fails, nothing is replaced.

            EXAMPLES
              token-cache restore /var/backups/tokens.db
            """
    )

    @Argument(help: "A file that token-cache backup has written.", completion: .file())
    var file: String

    @OptionGroup var options: StoreCommandOptions

    func run() async throws {
        let settings = try options.load()
        let bar = ProgressBar("Checking")
        defer { bar.finish() }
        let outcome: StoreReplacement
        do throws(StoreAccess.Failure) {
            let path = URL(filePath: file).standardizedFileURL.path
            outcome = try StoreAccess.restore(settings, from: path, logger: options.logger) { bar.show($0) }
        } catch {
            bar.finish()
            throw options.configuration.fault("\(error)")
        }
        bar.finish()
        try options.output.print(
            outcome, "restored \(Text.count(outcome.tokens, "token")), \(Text.bytes(outcome.bytes))"
        )
    }
}
