import ArgumentParser
import FoundationEssentials
import TokenStore

/// The command `token-cache keys create`.
struct KeysCreate: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "create",
        abstract: "Make a key ring before the first start, for a secret or a credential.",
        discussion: """
            Needs no store. Without this command, the first start makes a key ring in the data folder. Keep a copy: without the \
            key ring the tokens are lost.

            EXAMPLES
              token-cache keys create /etc/credstore/token-cache.keys
              token-cache keys create - | kubectl create secret generic token-cache-keys --from-file=token-cache.keys=/dev/stdin
            """
    )

    @Argument(help: "The file to make, or - for standard output.", completion: .file())
    var file: String

    func run() async throws {
        do {
            if file == "-" {
                // The file's last line ends with the newline that printing adds.
                try StandardOutput.print(String(decoding: try KeyRingFile.newText().dropLast(), as: UTF8.self))
            } else {
                let path = URL(filePath: file).standardizedFileURL.path
                try KeyRingFile(path: path, credentials: nil, directory: "").create()
            }
        } catch let error as KeyRingError {
            StandardError.print("\(error)")
            throw ExitCode.failure
        }
    }
}
