import ArgumentParser
import Audit
import Operations
import Settings
import TokenStore

/// The command `token-cache erase`.
struct Erase: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Erase a user: the token and all sessions.",
        discussion: """
            Copies of damaged WALs are removed as well. A keyed hash of the user is kept in the file erasures beside the key \
            ring, so that token-cache restore leaves the user out of older backups, unless something was stored for it \
            later. The backups themselves keep what they hold until they are deleted.

            With store.url, the rows of the user are removed, and for an hour a keyed hash stays in their place. What PostgreSQL \
            holds of removed rows until they are vacuumed, its write-ahead log and its backups are not touched, and a restored \
            backup brings the user back.

            EXAMPLES
              token-cache erase user-4711
              echo user-4711 | token-cache erase -
            """
    )

    @Argument(help: "The user, which is the unique id of its token; - reads it from standard input.")
    var user: String

    @OptionGroup var options: StoreCommandOptions

    func run() async throws {
        let request = EraseUser(user: try options.text(user, of: "the user"))
        let reply = try await options.withStore(for: .erase) { try await $0.perform(request) }
        let rest =
            try options.load().store.url.isEmpty
            ? "no row of the user is left in the data folder"
            : "no row of the user is left in the database, whose WAL and backups keep what they hold"
        try options.output.print(
            reply,
            "erased \(reply.hadToken ? "a token" : "no token") and \(Text.count(reply.sessions, "session")); \(rest)"
        )
    }
}
