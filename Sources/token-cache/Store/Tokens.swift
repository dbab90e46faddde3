import ArgumentParser
import Audit
import FoundationEssentials
import Operations
import TokenStore

/// The command `token-cache get`.
struct Get: StoreCommand {
    static let configuration = CommandConfiguration(
        commandName: "get",
        abstract: "Print the token info of an id; the exit status is 1 if there is none.",
        discussion: """
            EXAMPLES
              token-cache get 9f8a4c1e7b3d60528cd1e5f27a94b306
              echo 9f8a4c1e7b3d60528cd1e5f27a94b306 | token-cache get -
            """
    )

    @Argument(help: "The unique id; - reads it from standard input, so that other users cannot see it with ps.")
    var id: String

    @OptionGroup var options: StoreCommandOptions

    func run() async throws {
        let id = try StandardInput.text(id, of: "the id")
        let reply = try await options.perform(FetchToken(id: id))
        if options.output.json {
            try StandardOutput.print(try OutputOptions.text(reply))
        } else if let tokenInfo = reply.tokenInfo {
            try StandardOutput.print(tokenInfo)
        }
        if reply.tokenInfo == nil { throw CommandFailure("nothing is stored under this id") }
    }
}

/// The command `token-cache put`.
struct Put: StoreCommand {
    static let configuration = CommandConfiguration(
        commandName: "put",
        abstract: "Store a token info under an id, as POST does.",
        discussion: """
            EXAMPLES
              token-cache put 9f8a4c1e7b3d60528cd1e5f27a94b306 hello
              token-cache put 9f8a4c1e7b3d60528cd1e5f27a94b306 - < token.json
              printf '%s\\n%s' 9f8a4c1e7b3d60528cd1e5f27a94b306 hello | token-cache put -
            """
    )

    @Argument(
        help: "The unique id; - reads it from the first line of standard input, and the token info from the rest.")
    var id: String

    @Argument(help: "The token info; if it is missing or -, it is read from standard input.")
    var tokenInfo = "-"

    @OptionGroup var options: StoreCommandOptions

    func run() async throws {
        var (id, tokenInfo) = (id, tokenInfo)
        if id == "-" {
            guard tokenInfo == "-" else {
                throw CommandFailure("with - as the id, the token info is read from standard input too")
            }
            (id, tokenInfo) = StandardInput.firstLine(try StandardInput.text("-", of: "the id"))
        } else {
            tokenInfo = try StandardInput.text(tokenInfo, of: "the token info")
        }
        let entry = StoreTokens.Entry(id: id, tokenInfo: StoredText.tokenInfo(tokenInfo))
        let reply = try await options.perform(StoreTokens(tokens: [entry]), creates: true)
        if let failure = reply.failures.values.first { throw CommandFailure(failure) }
        try options.output.print(reply, "stored")
    }
}

/// The command `token-cache delete`.
struct Delete: StoreCommand {
    static let configuration = CommandConfiguration(
        commandName: "delete",
        abstract: "Delete tokens, and their traces in the files; the exit status is 1 if there was none.",
        discussion: """
            EXAMPLES
              token-cache delete 9f8a4c1e7b3d60528cd1e5f27a94b306
              token-cache delete - < ids.txt
            """
    )

    @Argument(help: "The unique ids; - reads them from standard input, one per line.")
    var ids: [String]

    @OptionGroup var options: StoreCommandOptions

    func validate() throws {
        if ids.contains("-") && ids.count > 1 {
            throw ValidationError("Give either ids, or - to read them from standard input.")
        }
    }

    func run() async throws {
        var ids = ids
        if ids == ["-"] {
            ids = StandardInput.lines(try StandardInput.text("-", of: "the ids"))
        }
        let reply = try await options.perform(RemoveTokens(ids: ids))
        try options.output.print(reply, "removed \(Text.count(reply.removed, "token"))")
        if reply.removed == 0 { throw ExitCode.failure }
    }
}

/// The command `token-cache list`.
struct List: StoreCommand {
    static let configuration = CommandConfiguration(
        commandName: "list",
        abstract: "List the tokens with their ages and sizes, never with their contents.",
        discussion: """
            Prints one line per token, in no particular order: the time since it was written, the size of its token info, \
            and when it expires according to the token info; then the totals. With --json, each line is an object.

            EXAMPLES
              token-cache list
              token-cache list --show-ids --json
            """
    )

    @Flag(name: .customLong("show-ids"), help: "Show the unique ids, which are secrets.")
    var showIDs = false

    @OptionGroup var options: StoreCommandOptions

    /// How many tokens are requested at a time.
    private static let page = 1_000

    func run() async throws {
        let now = Int64(Date.now.timeIntervalSince1970)
        let (count, bytes, fault) = try await options.withStore(for: .list) { store in
            var (cursor, count, bytes, fault): (String?, Int, Int, String?) = (nil, 0, 0, nil)
            while true {
                let page = try await store.perform(ListTokens(after: cursor, limit: Self.page, showsIDs: showIDs))
                let lines = try page.tokens.map { token in
                    options.output.json ? try OutputOptions.text(token) : line(token, at: now)
                }
                if !lines.isEmpty { try StandardOutput.print(lines.joined(separator: "\n")) }
                let faults = page.tokens.compactMap(\.fault)
                fault = fault ?? faults.first
                count += lines.count - faults.count
                bytes += page.tokens.reduce(0) { $0 + ($1.size ?? 0) }
                cursor = page.next
                if cursor == nil { return (count, bytes, fault) }
            }
        }
        if !options.output.json {
            try StandardOutput.print("\(Text.count(count, "token")), \(Text.bytes(bytes))")
        }
        if let fault { throw CommandFailure("not all tokens could be read (\(fault)); see token-cache verify") }
    }

    private func line(_ token: ListTokens.Entry, at now: Int64) -> String {
        // Of a damaged page, nothing is known.
        var parts = token.writtenAt > 0 ? ["written \(Text.age(from: token.writtenAt, to: now)) ago"] : []
        if let size = token.size { parts.append(Text.count(size, "byte")) }
        if let expiresAt = token.expiresAt {
            parts.append(
                expiresAt <= now ? "expired" : "expires in \(Text.age(from: now, to: expiresAt))"
            )
        }
        if let fault = token.fault { parts.append(fault) }
        if let id = token.id { parts.append(Text.visible(id)) }
        return parts.joined(separator: "  ")
    }
}

/// The command `token-cache stats`.
struct Stats: StoreCommand {
    static let configuration = CommandConfiguration(
        commandName: "stats",
        abstract: "Print figures about the store.",
        discussion: """
            In a large PostgreSQL database, the number of tokens is the estimate of PostgreSQL's last ANALYZE of the table. The walk, \
            which visits all rows once a day, has counted them; token-cache verify makes a new one.
            """
    )

    @OptionGroup var options: StoreCommandOptions

    func run() async throws {
        let found = try await options.perform(StatisticsOfStore())
        let isEstimated = found.tokensAreEstimated ?? false
        var lines = ["tokens            \(isEstimated ? "about " : "")\(Text.number(found.tokens))"]
        if let bytes = found.databaseBytes {
            let free = found.freeBytes.map { ", of which free \(Text.bytes($0))" } ?? ""
            lines.append("database          \(Text.bytes(bytes))\(free)")
        }
        if let bytes = found.walBytes { lines.append("WAL               \(Text.bytes(bytes))") }
        let schema = found.schemaVersion.map { ", schema \($0)" } ?? ""
        lines += [
            "sealing key       \(found.newestKey)",
            "unreadable reads  \(Text.number(found.unreadableReads)) since the start",
            "store             \(found.software)\(schema)",
            "place             \(found.place)",
        ]
        if let walk = found.walk { lines.append("last walk         \(Self.text(walk))") }
        try options.output.print(found, lines.joined(separator: "\n"))
    }

    private static func text(_ walk: WalkStatus) -> String {
        let present = "the present one is at \(walk.progress.done * 100 / max(1, walk.progress.total)) %"
        guard let last = walk.last, let end = last.endedAt else { return "none has ended; \(present)" }
        let rows = "\(Text.count(last.tokens, "token")) and \(Text.count(last.sessions, "session"))"
        return "\(Text.time(end)), \(rows)\(last.isSound ? "" : ", damaged; see token-cache doctor"); \(present)"
    }
}
