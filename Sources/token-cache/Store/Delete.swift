import ArgumentParser
import Audit
import Operations

/// The command `token-cache delete`.
struct Delete: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Delete tokens, and their traces in the files; the exit status is 1 if there was none.",
        discussion: """
            EXAMPLES
              token-cache delete 9f8a4c1e7b3d60528cd1e5f27a94b306 c41d09b7e2f85a6330d7b19e4ac5f862
              token-cache delete - < ids.txt
            """
    )

    @Argument(help: "The unique ids; - reads them from standard input, one per line.")
    var ids: [String]

    @OptionGroup var options: StoreCommandOptions

    func validate() throws {
        if ids.contains("-") && ids.count > 1 {
            throw ValidationError("Give either ids, or - to read them from standard input.")
        }
    }

    func run() async throws {
        var ids = ids
        if ids == ["-"] {
            ids = StandardInput.lines(try options.text("-", of: "the ids"))
        }
        let named = ids
        let reply = try await options.withStore(for: .remove) { try await $0.perform(RemoveTokens(ids: named)) }
        try options.output.print(reply, "removed \(Text.count(reply.removed, "token"))")
        if reply.removed == 0 { throw ExitCode.failure }
    }
}
