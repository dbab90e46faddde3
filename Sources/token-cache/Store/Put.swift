import ArgumentParser
import Audit
import Operations

/// The command `token-cache put`.
struct Put: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Store a token info under an id, as POST does.",
        discussion: """
            EXAMPLES
              token-cache put 9f8a4c1e7b3d60528cd1e5f27a94b306 hello
              token-cache put 9f8a4c1e7b3d60528cd1e5f27a94b306 - < token.json
              printf '%s\\n%s' 9f8a4c1e7b3d60528cd1e5f27a94b306 hello | token-cache put -
            """
    )

    @Argument(
        help: "The unique id; - reads it from the first line of standard input, and the token info from the rest.")
    var id: String

    @Argument(help: "The token info; if it is missing or -, it is read from standard input.")
    var tokenInfo = "-"

    @OptionGroup var options: StoreCommandOptions

    func run() async throws {
        var (id, tokenInfo) = (id, tokenInfo)
        if id == "-" {
            guard tokenInfo == "-" else {
                throw options.configuration.fault("with - as the id, the token info is read from standard input too")
            }
            (id, tokenInfo) = StandardInput.firstLine(try options.text("-", of: "the id"))
        } else {
            tokenInfo = try options.text(tokenInfo, of: "the token info")
        }
        let entry = StoreTokens.Entry(id: id, tokenInfo: StoredText.tokenInfo(tokenInfo))
        let reply = try await options.withStore(for: .store, creates: true) {
            try await $0.perform(StoreTokens(tokens: [entry]))
        }
        if let failure = reply.failures.values.first { throw options.configuration.fault(failure) }
        try options.output.print(reply, "stored")
    }
}
