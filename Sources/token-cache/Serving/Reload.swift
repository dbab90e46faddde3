import ArgumentParser
import Operations
import Server

/// The command `token-cache reload`.
struct Reload: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Make the running server read its settings again, and print the result.",
        discussion: """
            Works as SIGHUP does, and waits for the result. The command reaches the server over control.sock in its data \
            folder, and must run as the server's user or root. The exit status is 1 if a setting or file is wrong; then \
            nothing has changed.

            EXAMPLES
              token-cache reload
              token-cache reload --config /etc/token-cache/token-cache.yaml
            """
    )

    @OptionGroup var options: ConfigurationOptions
    @OptionGroup var output: OutputOptions

    func run() async throws {
        do {
            let outcome = try ServerControl.reload(try options.load())
            try output.print(outcome, outcome.isReloaded ? "reloaded: \(outcome.outcome)" : outcome.outcome)
            if !outcome.isReloaded { throw ExitCode.failure }
        } catch let failure as ServerControl.Failure {
            throw options.fault("\(failure)")
        }
    }
}
