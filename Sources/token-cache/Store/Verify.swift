import ArgumentParser
import Operations
import TokenStore

/// The command `token-cache verify`.
struct Verify: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Check the store's structure, and that every token can be decrypted; the exit status is 1 if not."
    )

    @OptionGroup var options: StoreCommandOptions

    func run() async throws {
        let found = try await options.perform(VerifyStore(), for: nil, "Verifying")
        var lines = ["\(Text.count(found.tokens, "token")) checked"]
        for (reason, count) in found.unreadable.sorted(by: { $0.key < $1.key }) {
            lines.append("\(Text.count(count, "time")): \(reason)")
        }
        lines += found.damages.map { "damage: \($0)" }
        if let count = found.wrongCount { lines.append("the store's own count is \(Text.number(count)) tokens") }
        if let copy = found.damagedCopy {
            lines.append(
                "\(copy) is a copy of a damaged WAL, with tokens that the store may lack; remove it when you no longer need it"
            )
        }
        lines.append(found.isSound ? "the store is sound" : "the store is not sound; see token-cache restore")
        try options.output.print(found, lines.joined(separator: "\n"))
        if !found.isSound { throw ExitCode.failure }
    }
}
