import ArgumentParser
import Operations
import Server

/// The command `token-cache reload`.
struct Reload: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Have the running server read its settings again, and say what came of it.",
        discussion: """
            As SIGHUP does, and waits for the end. The server is found by its data folder and asked over control.sock there, \
            as its user or root. Exit status 1 says that nothing has changed, as a setting or a file is wrong.

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
