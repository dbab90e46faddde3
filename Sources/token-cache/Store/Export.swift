import ArgumentParser
import Audit
import Operations
import TokenPHPFiles
import TokenService
import TokenStore

/// The command `token-cache export`.
struct Export: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Write the tokens as token.php's data files, unencrypted, even while a server runs.",
        discussion: """
            Writes one file ID.txt per token, readable only by its owner, with the time at which the token was written. Ids \
            that cannot be file names are skipped and counted.

            EXAMPLES
              token-cache export /var/www/html/data
            """
    )

    @Argument(
        help: "The folder to write to, created if missing; existing files are replaced.",
        completion: .directory)
    var directory: String

    @Option(
        name: .long,
        help: ArgumentHelp(
            """
            The format of the files: json (PHP's json_encode of the token info, as token.php writes), \
            object ({"token_info": ...}) or raw.
            """,
            valueName: "format"
        )
    )
    var format: TokenPHPFileFormat = .json

    @OptionGroup var options: StoreCommandOptions

    /// How many tokens are requested at a time.
    private static let page = 500

    func run() async throws {
        let summary = try await options.withStore(for: .export) { store in
            let bar = ProgressBar("Exporting")
            defer { bar.finish() }
            do {
                return try await write(bar, store)
            } catch let error as TokenPHPFolderError {
                throw options.configuration.fault("\(error)")
            } catch let error as TokenPHPFolderWriter.Failure {
                throw options.configuration.fault("\(error)")
            }
        }
        try options.output.print(summary, summary.text("written"))
    }

    private func write(_ bar: ProgressBar, _ store: StoreAccess) async throws -> TransferSummary {
        let writer = try TokenPHPFolderWriter(directory, format: format)
        let total = try await store.perform(StatisticsOfStore()).tokens
        var summary = TransferSummary()
        var (cursor, seen): (StoreCursor?, Int) = (nil, 0)
        while true {
            let page = try await store.perform(
                ListTokens(after: cursor, limit: Self.page, showsIDs: true, showsTokenInfos: true)
            )
            for token in page.tokens {
                guard let id = token.id, let tokenInfo = token.tokenInfo else {
                    summary.skip(.unopened)
                    continue
                }
                if let reason = try writer.write(
                    Array(tokenInfo.utf8), id: Array(id.utf8), modifiedAt: token.writtenAt)
                {
                    summary.skip(reason)
                } else {
                    summary.done += 1
                }
            }
            seen += page.tokens.count
            bar.show(StoreProgress(done: min(seen, total), total: total))
            cursor = page.next
            if cursor == nil { break }
        }
        try writer.finish()
        summary.formats[format.rawValue] = summary.done
        return summary
    }
}

extension TokenPHPFileFormat: ExpressibleByArgument {}
