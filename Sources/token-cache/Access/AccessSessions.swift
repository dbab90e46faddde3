import ArgumentParser
import Glibc
import Operations
import Settings
import TokenStore

/// The command `token-cache access sessions`.
struct AccessSessions: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "sessions",
        abstract: "Make, show and end the sessions of users.",
        discussion: """
            A user is the owner of a token. Other users of this machine can see the argument while the command runs; - reads it \
            from standard input.

            EXAMPLES
              echo user-4711 | token-cache access sessions add -
              token-cache access sessions list user-4711
              token-cache access sessions remove htRy0N150mwfanC_l3ptSw
              token-cache access sessions remove --user user-4711
            """,
        subcommands: [AddCommand.self, ListCommand.self, RemoveCommand.self]
    )

    /// The command `token-cache access sessions add`.
    struct AddCommand: StoreCommand {
        static let configuration = CommandConfiguration(
            commandName: "add", abstract: "Make a session and print it, alone, on standard output; it is shown once.")

        @Argument(help: "The user; - reads it from standard input.")
        var user: String

        @OptionGroup var options: StoreCommandOptions

        func run() async throws {
            let session = try options.load().access.session
            let request = AddSession(
                user: try StandardInput.text(user, of: "the user"), maxAge: session.maxAge.components.seconds,
                perUser: Settings.Session.perUser)
            let reply = try await options.perform(request)
            // If the reader of the output is gone, the write then fails instead of ending the process.
            _ = signal(SIGPIPE, SIG_IGN)
            do {
                try options.output.print(reply, reply.session)
            } catch {
                // The session is useless, as nobody has seen its secret.
                _ = try? await options.perform(RemoveSessions(id: reply.id))
                throw error
            }
            StandardError.print(
                """
                the session \(reply.id) is valid until \(Text.time(reply.expiresAt)); its secret is not shown again\
                \(reply.ended > 0 ? ", and \(Text.count(reply.ended, "older session")) of the user ended to make room" : "")
                """
            )
        }
    }

    /// The command `token-cache access sessions list`.
    struct ListCommand: StoreCommand {
        static let configuration = CommandConfiguration(
            commandName: "list", abstract: "List ids and times of a user's sessions, never their secrets.")

        @Argument(help: "The user; - reads it from standard input.")
        var user: String

        @OptionGroup var options: StoreCommandOptions

        func run() async throws {
            let request = ListSessions(user: try StandardInput.text(user, of: "the user"))
            let reply = try await options.perform(request)
            let lines = reply.sessions.map {
                """
                \($0.id)  created \(Text.time($0.createdAt))  last used \(Text.time($0.lastUsedAt))  \
                expires \(Text.time($0.expiresAt))
                """
            }
            try options.output.print(
                reply, lines.isEmpty ? "the user has no session" : lines.joined(separator: "\n"))
        }
    }

    /// The command `token-cache access sessions remove`.
    struct RemoveCommand: StoreCommand {
        static let configuration = CommandConfiguration(
            commandName: "remove", abstract: "End a session, or all of a user; the exit status is 1 if there was none.")

        @Argument(help: "The session's id, as token-cache access sessions list shows it.")
        var id: String?

        @Option(help: ArgumentHelp("End all sessions of a user; - reads it from standard input.", valueName: "user"))
        var user: String?

        @OptionGroup var options: StoreCommandOptions

        func validate() throws {
            guard (id == nil) != (user == nil) else {
                throw ValidationError("Give either the id of a session, or --user.")
            }
        }

        func run() async throws {
            let request: RemoveSessions
            if let user {
                request = RemoveSessions(user: try StandardInput.text(user, of: "the user"))
            } else {
                request = RemoveSessions(id: id ?? "")
            }
            let reply = try await options.perform(request)
            try options.output.print(reply, "ended \(Text.count(reply.removed, "session"))")
            if reply.removed == 0 { throw ExitCode.failure }
        }
    }
}

/// The command `token-cache erase`.
struct Erase: StoreCommand {
    static let configuration = CommandConfiguration(
        commandName: "erase",
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
        let request = EraseUser(user: try StandardInput.text(user, of: "the user"))
        let reply = try await options.perform(request)
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
