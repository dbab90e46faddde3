import ArgumentParser
import Operations
import TokenPHPFiles
import TokenService
import TokenStore

/// The command `token-cache export`.
struct Export: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Write the tokens as token.php's data files, in the clear, also while a server runs.",
        discussion: """
            A file ID.txt a token, for its owner alone, with the time of the token's writing. Ids that cannot be a file's \
            name are skipped and counted.

            EXAMPLES
              token-cache export /var/www/html/data
            """
    )

    @Argument(
        help: "The folder to write to, made if it is missing; files that are there are replaced.",
        completion: .directory)
    var directory: String

    @Option(
        name: .long,
        help: ArgumentHelp(
            """
            How a file holds its token info: json (PHP's json_encode of it, what token.php writes), \
            object ({"token_info": ...}) or raw.
            """,
            valueName: "format"
        )
    )
    var format: TokenPHPFileFormat = .json

    @OptionGroup var options: StoreCommandOptions

    /// Tokens that are asked for at a time.
    private static let page = 500

    func run() async throws {
        let summary = try await options.withStore { store in
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
