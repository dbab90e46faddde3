import ArgumentParser
import Operations

/// The command `token-cache drain`.
struct Drain: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Have the running server answer what it has received, and stop.",
        discussion: """
            As SIGTERM does, which then does not hasten it; it takes drain_timeout at most. The server is found by its data \
            folder and asked over control.sock there, as its user or root. It ends with status 0, so that a service manager \
            does not restart it.

            EXAMPLES
              token-cache drain
              token-cache drain --config /etc/token-cache/token-cache.yaml
            """
    )

    @OptionGroup var options: ConfigurationOptions
    @OptionGroup var output: OutputOptions

    func run() async throws {
        do {
            let answer = try ServerControl.drain(try options.load())
            try output.print(answer, "the server finishes what is under way, and stops")
        } catch let failure as ServerControl.Failure {
            throw options.fault("\(failure)")
        }
    }
}
