import ArgumentParser
import Audit
import FoundationEssentials
import Operations
import TokenStore

/// The command `token-cache list`.
struct List: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
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
        let count = try await options.withStore(for: .list) { store in
            var (cursor, count, bytes): (StoreCursor?, Int, Int) = (nil, 0, 0)
            while true {
                let page = try await store.perform(ListTokens(after: cursor, limit: Self.page, showsIDs: showIDs))
                let lines = try page.tokens.map { token in
                    options.output.json ? try OutputOptions.text(token) : line(token, at: now)
                }
                if !lines.isEmpty { try StandardOutput.print(lines.joined(separator: "\n")) }
                count += lines.count
                bytes += page.tokens.reduce(0) { $0 + ($1.size ?? 0) }
                cursor = page.next
                if cursor == nil { return (count, bytes) }
            }
        }
        if !options.output.json {
            try StandardOutput.print("\(Text.count(count.0, "token")), \(Text.bytes(count.1))")
        }
    }

    private func line(_ token: ListTokens.Entry, at now: Int64) -> String {
        var parts = ["written \(Text.age(from: token.writtenAt, to: now)) ago"]
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
