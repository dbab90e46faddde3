import ArgumentParser
import FoundationEssentials
import TokenService

/// The commands such as `token-cache access keys list`.
struct ListBearerKeys<Scope: CommandKeyScope>: AsyncParsableCommand {
    static var configuration: CommandConfiguration {
        CommandConfiguration(
            commandName: "list", abstract: "List names, scopes and times of the keys, never the keys themselves."
        )
    }

    @OptionGroup var options: BearerKeyOptions<Scope>
    @OptionGroup var output: OutputOptions

    func run() async throws {
        let path = try options.path()
        let keys: [BearerKey<Scope>]
        do throws(BearerKeyFileError<Scope>) {
            keys = try BearerKeys<Scope>.load(path)?.all ?? []
        } catch {
            throw options.configuration.fault("\(error)")
        }
        let now = Int64(Date().timeIntervalSince1970)
        let lines = keys.map { Self.line($0, now) }
        try output.print(
            ["keys": keys.map { Listed($0, now) }],
            lines.isEmpty ? "there are no \(Scope.kind.plural) in \(path)" : lines.joined(separator: "\n")
        )
    }

    private static func line(_ key: BearerKey<Scope>, _ now: Int64) -> String {
        var text = "\(key.name)  \(BearerKey<Scope>.names(key.scopes).joined(separator: ", "))"
        text += "  created \(Text.time(key.createdAt))"
        if let expiresAt = key.expiresAt {
            text += "  \(key.hasExpired(at: now) ? "has expired" : "expires") \(Text.time(expiresAt))"
        }
        return text
    }

    /// A key as JSON has it; times are in seconds since 1970.
    private struct Listed: Encodable {
        let name: String
        let scopes: [String]
        let createdAt: Int64
        let expiresAt: Int64?
        let isExpired: Bool

        init(_ key: BearerKey<Scope>, _ now: Int64) {
            name = key.name
            scopes = BearerKey<Scope>.names(key.scopes)
            createdAt = key.createdAt
            expiresAt = key.expiresAt
            isExpired = key.hasExpired(at: now)
        }

        private enum CodingKeys: String, CodingKey {
            case name, scopes
            case createdAt = "created_at"
            case expiresAt = "expires_at"
            case isExpired = "expired"
        }
    }
}
