import ArgumentParser
import Operations
import TokenStore

/// The command `token-cache stats`.
struct Stats: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Print figures about the store.",
        discussion: """
            In a large PostgreSQL database, the number of tokens is the estimate that PostgreSQL has made when it last \
            analyzed the table.
            """
    )

    @Flag(help: "Count all tokens of a PostgreSQL database, which takes a second or more for each ten million.")
    var exact = false

    @OptionGroup var options: StoreCommandOptions

    func run() async throws {
        let found = try await options.withStore(for: nil) { [exact] in
            try await $0.perform(StatisticsOfStore(exactly: exact))
        }
        let sealing = found.newestKey.map { "yes, with key \($0)" } ?? "no"
        let isEstimated = found.tokensAreEstimated ?? false
        var lines = ["tokens            \(isEstimated ? "about " : "")\(Text.number(found.tokens))"]
        if let bytes = found.databaseBytes {
            let free = found.freeBytes.map { ", of which free \(Text.bytes($0))" } ?? ""
            lines.append("database          \(Text.bytes(bytes))\(free)")
        }
        if let bytes = found.walBytes { lines.append("WAL               \(Text.bytes(bytes))") }
        let schema = found.schemaVersion.map { ", schema \($0)" } ?? ""
        lines += [
            "sealed            \(sealing)",
            "unreadable reads  \(Text.number(found.unreadableReads)) since the start",
            "store             \(found.software)\(schema)",
            "place             \(found.place)",
        ]
        try options.output.print(found, lines.joined(separator: "\n"))
    }
}
