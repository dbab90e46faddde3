import ArgumentParser
import FoundationEssentials
import Operations
import Settings
import TokenStore

/// The command `token-cache restore`.
struct Restore: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Replace the store by a backup; the server must be stopped.",
        discussion: """
            The backup is checked first, and every row decrypted with the key ring; if that fails, nothing is replaced.

            Users that were erased after the backup was made are left out, by the file erasures beside the key ring; a token \
            that was stored for such a user later stays. All sessions end, as some of the backup's may have been revoked \
            since, unless --keep-sessions is given.

            EXAMPLES
              token-cache restore /var/backups/tokens.db
            """
    )

    @Argument(help: "A file that token-cache backup has written.", completion: .file())
    var file: String

    @Flag(help: "Keep the backup's sessions, also those that were ended after it was made.")
    var keepSessions = false

    @OptionGroup var options: StoreCommandOptions

    func run() async throws {
        let settings = try options.load()
        let bar = ProgressBar("Checking")
        defer { bar.finish() }
        let outcome: StoreReplacement
        do throws(StoreAccess.Failure) {
            let path = URL(filePath: file).standardizedFileURL.path
            outcome = try await StoreAccess.restore(
                settings, from: path, keepsSessions: keepSessions, logger: options.logger
            ) { bar.show($0) }
        } catch {
            bar.finish()
            throw options.configuration.fault("\(error)")
        }
        bar.finish()
        var lines = ["restored \(Text.count(outcome.tokens, "token")), \(Text.bytes(outcome.bytes))"]
        if let count = outcome.replacedTokens {
            lines.append("replaced a store of \(Text.count(count, "token"))")
        }
        if outcome.erasedUsers > 0 {
            lines.append("left out \(Text.count(outcome.erasedUsers, "user")) that had been erased")
        }
        if outcome.endedSessions > 0 {
            lines.append(
                "ended \(Text.count(outcome.endedSessions, "session")), as those that were revoked since cannot be told apart"
            )
        }
        try options.output.print(outcome, lines.joined(separator: "\n"))
        noteOtherRing(outcome, settings)
    }

    /// Warns if the server's key ring does not open what was restored, because a variable has named another one for this
    /// command.
    private func noteOtherRing(_ outcome: StoreReplacement, _ settings: Settings) {
        let variable = "TOKEN_CACHE_SEALING_KEY_RING"
        var loader = options.configuration.loader()
        guard loader.environment.removeValue(forKey: variable) != nil, let server = try? loader.load(),
            let fault = StoreAccess.ringFault(of: outcome, restoredWith: settings, for: server)
        else { return }
        StandardError.print(
            """
            \(fault); a server with neither \(variable) nor a credential uses that one, and cannot read the tokens. Put \
            \(settings.sealing.keyRing) in its place, or name it in the settings (sealing.key_ring)
            """
        )
    }
}
