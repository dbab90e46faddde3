import ArgumentParser
import Operations
import Server

/// The command `token-cache health`.
struct Health: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Ask the running server whether it is ready; exit status 0 says yes, 1 no.",
        discussion: """
            It asks at admin.listen, or at the control socket where that is off. The settings are found as \
            serve finds them.

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
        if !readiness.isReady { throw ExitCode.failure }
    }
}
