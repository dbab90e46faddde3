import ArgumentParser

/// The command `token-cache admin`.
struct Admin: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Decide who may use the administration over TCP (admin.listen).", subcommands: [AdminKeysCommand.self]
    )
}
