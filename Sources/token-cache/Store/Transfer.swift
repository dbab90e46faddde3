import ArgumentParser
import Audit
import Operations
import Settings
import System
import TokenPHPFiles
import TokenService
import TokenStore

/// The command `token-cache import`.
struct Import: StoreCommand {
    static let configuration = CommandConfiguration(
        commandName: "import",
        abstract: "Store the tokens of token.php's data folder, even while a server runs.",
        discussion: """
            Reads every file ID.txt in the folder, and keeps the time at which it was written. A file has the token info \
            as a JSON string, as token.php writes it, in {"token_info": "..."}, or as it is. The import can be run again, for \
            example after the clients have moved: tokens that clients have stored in the meantime are newer than their files, and \
            are kept.

            EXAMPLES
              token-cache import /var/www/html/data
            """
    )

    @Argument(help: "token.php's data folder.", completion: .directory)
    var directory: String

    @Flag(name: .long, help: "Replace newer tokens as well.")
    var overwrite = false

    @Flag(
        name: .customLong("show-skipped"),
        help: "Name all skipped files, not only those too large to be sent; the names contain unique ids.")
    var showsSkipped = false

    @OptionGroup var options: StoreCommandOptions

    /// How many tokens, and how many bytes of JSON, a request to the store contains at most.
    private static let (batch, batchBytes) = (500, 8 << 20)

    func run() async throws {
        // A wrong folder is refused before a store is created.
        _ = try TokenPHPFolderReader(directory)
        let settings = try options.load()
        if let own = FileStatus(settings.dataDirectoryPath), own.identity == FileStatus(directory)?.identity {
            throw CommandFailure(
                """
                \(directory) is also the data directory, where the store would be made; name the server's with --config or \
                --data-directory
                """)
        }
        let summary = try await options.withStore(for: .store, creates: true) { store in
            let bar = ProgressBar("Importing")
            defer { bar.finish() }
            return try await self.store(bar, store)
        }
        try options.output.print(summary, summary.text("stored"))
    }

    private func store(_ bar: ProgressBar, _ store: StoreAccess) async throws -> TransferSummary {
        let reader = try TokenPHPFolderReader(directory)
        let total = try reader.count()
        var summary = TransferSummary()
        var seen = 0
        var (batch, bytes, isFirst): ([StoreTokens.Entry], Int, Bool) = ([], 0, true)
        while let entry = try reader.next() {
            seen += 1
            switch entry {
            case .token(let file):
                let token = StoreTokens.Entry(
                    id: String(decoding: file.id, as: UTF8.self),
                    tokenInfo: String(decoding: file.tokenInfo, as: UTF8.self), writtenAt: file.modifiedAt
                )
                let size = token.encodedSize
                if let limit = store.requestLimit, size > limit {
                    summary.skip(.tooLargeToSend)
                    // Always named, as the operator must import the file while the server is stopped.
                    show(.tooLargeToSend, file.name, bar)
                    break
                }
                if batch.count == Self.batch || bytes + size > Self.batchBytes {
                    try await send(&batch, to: store, isFirst, &summary)
                    (bytes, isFirst) = (0, false)
                }
                bytes += size
                batch.append(token)
            case .skipped(let name, let reason):
                summary.skip(reason)
                if showsSkipped { show(reason, name, bar) }
            }
            bar.show(StoreProgress(done: seen, total: total))
        }
        try await send(&batch, to: store, isFirst, &summary)
        return summary
    }

    private func show(_ reason: TokenPHPFile.SkipReason, _ name: [UInt8], _ bar: ProgressBar) {
        bar.finish()
        let line = "\(Text.visible(String(decoding: name, as: UTF8.self))): \(reason.explanation)\n"
        StandardError.write(line)
    }

    private func send(
        _ batch: inout [StoreTokens.Entry], to store: StoreAccess, _ isFirst: Bool, _ summary: inout TransferSummary
    ) async throws {
        guard !batch.isEmpty else { return }
        let reply = try await store.perform(StoreTokens(tokens: batch, keepsNewer: !overwrite, beginsImport: isFirst))
        summary.done += reply.stored
        for _ in 0..<reply.newer { summary.skip(.newer) }
        // For example, the disk is full: the tokens stored so far stay, and the next run continues.
        if let failure = reply.failures.values.first {
            throw CommandFailure("after \(Text.count(summary.done, "token")): \(failure)")
        }
        batch.removeAll(keepingCapacity: true)
    }
}

/// The command `token-cache export`.
struct Export: StoreCommand {
    static let configuration = CommandConfiguration(
        commandName: "export",
        abstract: "Write the tokens as token.php's data files, unencrypted, even while a server runs.",
        discussion: """
            Writes one file ID.txt per token, readable only by its owner, with the time at which the token was written. Ids \
            that cannot be file names are skipped and counted. A folder that has such files already is refused: the tokens of \
            users who have been erased since would stay in it.

            EXAMPLES
              token-cache export /tmp/data
            """
    )

    @Argument(
        help: "The folder to write to, created if missing, without files *.txt.",
        completion: .directory)
    var directory: String

    @OptionGroup var options: StoreCommandOptions

    /// How many tokens are requested at a time.
    private static let page = 500

    func run() async throws {
        let summary = try await options.withStore(for: .export) { store in
            let bar = ProgressBar("Exporting")
            defer { bar.finish() }
            return try await write(bar, store)
        }
        try options.output.print(summary, summary.text("written"))
        // The folder lacks tokens that the store has.
        if summary.skipped[TokenPHPFile.SkipReason.unopened.rawValue] != nil { throw ExitCode.failure }
    }

    private func write(_ bar: ProgressBar, _ store: StoreAccess) async throws -> TransferSummary {
        let writer = try TokenPHPFolderWriter(directory)
        let total = try await store.perform(StatisticsOfStore()).tokens
        var summary = TransferSummary()
        var (cursor, seen): (String?, Int) = (nil, 0)
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
        return summary
    }
}

/// The result of an import or export.
struct TransferSummary: Encodable {
    /// The number of tokens stored or written.
    var done = 0
    /// The number of files or tokens skipped, by reason.
    var skipped: [String: Int] = [:]

    mutating func skip(_ reason: TokenPHPFile.SkipReason) {
        skipped[reason.rawValue, default: 0] += 1
    }

    /// The summary as text, one line for each count.
    func text(_ verb: String) -> String {
        var lines = ["\(Text.count(done, "token")) \(verb)"]
        for reason in TokenPHPFile.SkipReason.allCases {
            guard let count = skipped[reason.rawValue] else { continue }
            lines.append("\(Text.number(count)) skipped: \(reason.explanation)")
        }
        return lines.joined(separator: "\n")
    }
}
