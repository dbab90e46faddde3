import ArgumentParser
import Operations
import Settings
import TokenStore

/// The command `token-cache seal`.
struct Seal: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Encrypt an unencrypted store; the server must be stopped. Then serve with sealing.enabled on."
    )

    @OptionGroup var options: StoreCommandOptions

    func run() async throws {
        try await Conversion(options: options, isSealed: true).run()
    }
}

/// The command `token-cache unseal`.
struct Unseal: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Decrypt a sealed store; the server must be stopped. Then serve with sealing.enabled off."
    )

    @OptionGroup var options: StoreCommandOptions

    func run() async throws {
        try await Conversion(options: options, isSealed: false).run()
    }
}

/// Runs both commands.
private struct Conversion {
    let options: StoreCommandOptions
    let isSealed: Bool

    func run() async throws {
        let settings = try options.load()
        let bar = ProgressBar(isSealed ? "Sealing" : "Unsealing")
        defer { bar.finish() }
        let outcome: StoreReplacement
        do throws(StoreAccess.Failure) {
            outcome = try await StoreAccess.convert(settings, isSealed: isSealed, logger: options.logger) {
                bar.show($0)
            }
        } catch {
            bar.finish()
            throw options.configuration.fault("\(error)")
        }
        bar.finish()
        let state = isSealed ? "sealed" : "in the clear"
        var text = "\(Text.count(outcome.tokens, "token")) \(outcome.tokens == 1 ? "is" : "are") \(state) now"
        if settings.sealing.isEnabled != isSealed {
            text += "; set sealing.enabled to \(isSealed ? "on" : "off") before the server starts"
        }
        try options.output.print(outcome, text)
    }
}
