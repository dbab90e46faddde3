import ArgumentParser
import Operations
import Server

/// The command `token-cache health`.
struct Health: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Check whether the running server is ready; the exit status is 0 if it is, otherwise 1.",
        discussion: """
            It asks the server on admin.listen, or on the control socket if admin.listen is off. It reads the settings as \
            serve does.

            EXAMPLES
              token-cache health
              token-cache health --config /etc/token-cache/token-cache.yaml --json
            """
    )

    @OptionGroup var options: ConfigurationOptions
    @OptionGroup var output: OutputOptions

    func run() async throws {
        let readiness = HealthProbe(try options.load()).ask()
        try output.print(
            readiness, readiness.isReady ? "ready" : "not ready: \(readiness.reasons.joined(separator: "; "))"
        )
        guard readiness.isReady else {
            options.noteForgottenFile()
            throw ExitCode.failure
        }
    }
}
