import ArgumentParser

/// The command `token-cache access`.
struct Access: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Decide who may read and write tokens.",
        subcommands: [AccessKeys.self, AccessSessions.self]
    )
}
