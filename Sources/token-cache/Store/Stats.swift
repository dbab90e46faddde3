import ArgumentParser
import Operations
import SQLiteStore
import TokenStore

/// The command `token-cache stats`.
struct Stats: AsyncParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Print the store in numbers.")

    @OptionGroup var options: StoreCommandOptions

    func run() async throws {
        let found = try await options.withStore { try await $0.perform(StatisticsOfStore()) }
        let sealing = found.newestKey.map { "yes, with key \($0)" } ?? "no"
        try options.output.print(
            found,
            """
            tokens            \(Text.number(found.tokens))
            database          \(Text.bytes(found.databaseBytes)), of which free \(Text.bytes(found.freeBytes))
            log               \(Text.bytes(found.logBytes))
            sealed            \(sealing)
            unreadable reads  \(Text.number(found.unreadableReads)) since the start
            SQLite            \(found.sqliteVersion), schema \(found.schemaVersion)
            folder            \(found.directory)
            """
        )
    }
}
