import ArgumentParser
import Audit
import Cryptography

/// The command `token-cache audit pseudonym`.
struct AuditPseudonymOf: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "pseudonym", abstract: "Print how a user or a session is called in the audit log."
    )

    @Argument(help: "The user, or with --session the session's id; - for standard input, which no process list shows.")
    var identifier: String

    @Flag(help: "The identifier is the public id of a session.")
    var session = false

    @Option(help: ArgumentHelp("The file with the first key.", valueName: "file"), completion: .file())
    var key: String

    func run() async throws {
        do {
            guard let text = identifier == "-" ? try StandardInput.text() : identifier else {
                StandardError.print("standard input is not UTF-8")
                throw ExitCode.failure
            }
            var bytes = Array(text.utf8)
            if session {
                guard let id = Base64URL.decode(bytes.span), id.count == 16 else {
                    StandardError.print(
                        "\(Text.visible(text)) is no session's id, which has 22 letters, digits, - and _")
                    throw ExitCode.failure
                }
                bytes = id
            }
            let hasher = try AuditHasher(AuditFirstKey(contentsOf: key).pseudonymKey())
            try StandardOutput.print(hasher.pseudonym(session ? .session : .user, of: bytes.span).text)
        } catch let error as AuditError {
            StandardError.print("\(error)")
            throw ExitCode.failure
        } catch let error as StandardInput.Failure {
            StandardError.print("standard input cannot be read: \(error.reason)")
            throw ExitCode.failure
        }
    }
}
