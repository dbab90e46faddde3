import ArgumentParser
import Operations

/// The command `token-cache drain`.
struct Drain: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Make the running server answer the requests it has received, and stop.",
        discussion: """
            Works as SIGTERM does, and takes drain_timeout at most; a SIGTERM afterwards does not shorten it. The command \
            reaches the server over control.sock in its data folder, and must run as the server's user or root. The server \
            ends with status 0, so that a service manager does not restart it.

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
            try output.print(answer, "the server answers the requests it has received, and stops")
        } catch let failure as ServerControl.Failure {
            throw options.fault("\(failure)")
        }
    }
}
