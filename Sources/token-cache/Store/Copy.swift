import ArgumentParser
import Operations
import Settings
import TokenStore

/// The command `token-cache copy`.
struct Copy: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Copy a store to PostgreSQL or back, and verify that everything is there, even while a server runs.",
        discussion: """
            Tokens and sessions are copied as they are: sealed by the same key ring, with their times and versions. A server \
            may go on using the source, and a row is taken only if nothing newer is in the target. So run it a first time \
            while the server runs, and again when it is stopped, which then takes only what has changed; or after an interruption.

            The key ring is that of sealing.key_ring, or else the file keys in the folder. All other settings of a database are \
            those of --config and the environment.

            EXAMPLES
              token-cache copy --from /var/lib/token-cache --to postgresql://token_cache@db1,db2/tokens
              token-cache copy --from postgresql://token_cache@db1,db2/tokens --to /var/lib/token-cache --remove-others
            """
    )

    @Option(
        help: ArgumentHelp(
            "The data folder of a SQLite store, or the URL of a database.", valueName: "directory-or-url"),
        completion: .directory)
    var from: String

    @Option(
        help: ArgumentHelp(
            "Where to copy to: a data folder, in which a store is made if there is none, or a URL.",
            valueName: "directory-or-url"),
        completion: .directory)
    var to: String

    @Flag(
        help: """
            Remove what is in the target only, such as what was removed from the source after an earlier copy; refused while a \
            server uses the target.
            """)
    var removeOthers = false

    @OptionGroup var options: StoreCommandOptions

    func run() async throws {
        let settings = try options.load()
        let summary: CopySummary
        do throws(StoreAccess.Failure) {
            summary = try await copied(settings)
        } catch {
            throw options.configuration.fault("\(error)")
        }
        try options.output.print(summary, summary.text)
        if !summary.isComplete { throw ExitCode.failure }
    }

    private func copied(_ settings: Settings) async throws(StoreAccess.Failure) -> CopySummary {
        let copy = try StoreCopy.open(settings, from: CopyPlace(from), to: CopyPlace(to), logger: options.logger)
        defer { copy.close() }
        let bars = StoreCopy.Stage.allCases.map { ($0, ProgressBar($0.rawValue)) }
        defer { for (_, bar) in bars { bar.finish() } }
        return try await copy.run(removesOthers: removeOthers) { stage, progress in
            for case (stage, let bar) in bars { bar.show(progress) }
        }
    }
}

extension CopySummary {
    fileprivate var text: String {
        var lines = [tokens.text("token")]
        if isTargetUsed {
            lines.append(
                "sessions were not copied, as servers use the target: those that have been ended there would count again"
            )
        } else {
            lines.append(sessions.text("session"))
        }
        if tokens.removed + sessions.removed > 0 {
            lines.append(
                """
                \(Text.count(tokens.removed, "token")) and \(Text.count(sessions.removed, "session")) removed, which were in the \
                target only
                """)
        }
        if tokens.others + sessions.others > 0 {
            lines.append(
                """
                \(Text.count(tokens.others, "token")) and \(Text.count(sessions.others, "session")) are in the target only: stored \
                there, or removed from the source after an earlier copy; --remove-others removes them
                """)
        }
        for (count, reason) in faults where count > 0 { lines.append("\(Text.count(count, "row")) \(reason)") }
        if isSourceUsed {
            lines.append("a server uses the source; what it stores from now on is copied when this is run again")
        }
        lines.append(isComplete ? "verified: everything is in the target" : "not everything is in the target")
        return lines.joined(separator: "\n")
    }

    /// How many rows are not in the target, and why.
    private var faults: [(count: Int, reason: String)] {
        func sum(_ count: KeyPath<Counts, Int>) -> Int { tokens[keyPath: count] + sessions[keyPath: count] }
        return [
            (sum(\.unreadable), "of the source cannot be decrypted and were left out; see token-cache verify"),
            (sum(\.different), "differ, although they are as old in both stores; one of them was changed by hand"),
            (sum(\.lost), "are not in the target, although nothing newer is there; run this again"),
        ]
    }
}

extension CopySummary.Counts {
    fileprivate func text(_ noun: String) -> String {
        var text = "\(Text.count(copied, noun)) copied"
        if same > 0 { text += ", \(Text.number(same)) there already" }
        if newer > 0 { text += ", \(Text.number(newer)) newer in the target" }
        if expired > 0 { text += ", \(Text.number(expired)) expired and left out" }
        if changed > 0 { text += ", \(Text.number(changed)) changed meanwhile and copied again" }
        return text
    }
}
