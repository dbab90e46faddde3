import ArgumentParser
import Audit
import Operations

/// The command `token-cache get`.
struct Get: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Print the token info of an id; the exit status is 1 if there is none.",
        discussion: """
            EXAMPLES
              token-cache get 9f8a4c1e7b3d60528cd1e5f27a94b306
              echo 9f8a4c1e7b3d60528cd1e5f27a94b306 | token-cache get -
            """
    )

    @Argument(help: "The unique id; - reads it from standard input, so that other users cannot see it with ps.")
    var id: String

    @OptionGroup var options: StoreCommandOptions

    func run() async throws {
        let id = try options.text(id, of: "the id")
        let reply = try await options.withStore(for: .read) { try await $0.perform(FetchToken(id: id)) }
        if options.output.json {
            try StandardOutput.print(try OutputOptions.text(reply))
        } else if let tokenInfo = reply.tokenInfo {
            try StandardOutput.print(tokenInfo)
        }
        if reply.tokenInfo == nil { throw options.configuration.fault("nothing is stored under this id") }
    }
}
