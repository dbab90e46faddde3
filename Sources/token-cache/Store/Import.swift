import ArgumentParser
import Audit
import Operations
import TokenPHPFiles
import TokenService
import TokenStore

/// The command `token-cache import`.
struct Import: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Store the tokens of token.php's data folder, even while a server runs.",
        discussion: """
            Reads every file ID.txt in the folder, in any format of token-cache export, and keeps the time at which it was \
            written. It can be run again, for example after the clients have moved: tokens that clients have stored in the \
            meantime are newer than their files, and are kept.

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
        // Before a store is made for nothing.
        do throws(TokenPHPFolderError) {
            _ = try TokenPHPFolderReader(directory)
        } catch {
            throw options.configuration.fault("\(error)")
        }
        let summary = try await options.withStore(for: .store, creates: true) { store in
            let bar = ProgressBar("Importing")
            defer { bar.finish() }
            do {
                return try await self.store(bar, store)
            } catch let error as TokenPHPFolderError {
                throw options.configuration.fault("\(error)")
            }
        }
        try options.output.print(summary, summary.text("stored"))
    }

    private func store(_ bar: ProgressBar, _ store: StoreAccess) async throws -> TransferSummary {
        let reader = try TokenPHPFolderReader(directory)
        let total = reader.count()
        var summary = TransferSummary()
        var seen = 0
        var (batch, bytes): ([StoreTokens.Entry], Int) = ([], 0)
        while let entry = reader.next() {
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
                    // Always named: the file is valid, and the operator must import it while the server is stopped.
                    show(.tooLargeToSend, file.name, bar)
                    break
                }
                if batch.count == Self.batch || bytes + size > Self.batchBytes {
                    try await send(&batch, to: store, &summary)
                    bytes = 0
                }
                summary.formats[file.format.rawValue, default: 0] += 1
                bytes += size
                batch.append(token)
            case .skipped(let name, let reason):
                summary.skip(reason)
                if showsSkipped { show(reason, name, bar) }
            }
            bar.show(StoreProgress(done: seen, total: total))
        }
        try await send(&batch, to: store, &summary)
        return summary
    }

    private func show(_ reason: TokenPHPFile.SkipReason, _ name: [UInt8], _ bar: ProgressBar) {
        bar.finish()
        let line = "\(Text.visible(String(decoding: name, as: UTF8.self))): \(reason.explanation)\n"
        StandardError.write(line)
    }

    private func send(
        _ batch: inout [StoreTokens.Entry], to store: StoreAccess, _ summary: inout TransferSummary
    ) async throws {
        guard !batch.isEmpty else { return }
        let reply = try await store.perform(StoreTokens(tokens: batch, keepsNewer: !overwrite, isImport: true))
        summary.done += reply.stored
        for _ in 0..<reply.newer { summary.skip(.newer) }
        // For example, the disk is full: the tokens stored so far stay, and the next run continues.
        if let failure = reply.failures.values.first {
            throw options.configuration.fault("after \(Text.count(summary.done, "token")): \(failure)")
        }
        batch.removeAll(keepingCapacity: true)
    }
}
