import ArgumentParser
import FoundationEssentials
import Operations
import TokenStore

/// The command `token-cache backup`.
struct Backup: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Write a consistent copy of the store, even while a server uses it.",
        discussion: """
            The copy is one file, checked and synced before it gets its name. It is sealed as the store is, and useless \
            without the key ring, which it does not contain: back that up separately. A running server writes the file \
            itself, so its user needs access to the folder.

            EXAMPLES
              token-cache backup /var/backups/tokens.db
            """
    )

    @Argument(help: "The file to write; an existing backup is replaced.", completion: .file())
    var file: String

    @OptionGroup var options: StoreCommandOptions

    func run() async throws {
        let path = URL(filePath: file).standardizedFileURL.path
        let written = try await options.perform(BackUpStore(path: path), "Backing up")
        try options.output.print(
            written, "\(written.path): \(Text.count(written.tokens, "token")), \(Text.bytes(written.bytes))"
        )
    }
}
