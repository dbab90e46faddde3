import ArgumentParser
import FoundationEssentials
import Glibc
import Logging
import Operations
import Server
import Settings
import TokenService
import TokenStore

/// The command `token-cache access`.
struct Access: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "access",
        abstract: "Show, make and end the API keys of an app's server and the sessions of users.",
        discussion: """
            EXAMPLES
              (umask 077; token-cache access keys add backend --scope sessions > backend.key)
              token-cache access keys list
              echo user-4711 | token-cache access sessions add -
            """,
        subcommands: [AccessKeys.self, AccessSessions.self]
    )
}

/// The command `token-cache access keys`.
struct AccessKeys: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "keys",
        abstract: "Show, make and remove the API keys of an app's server.",
        discussion: """
            The file that access.api.keys_file names has hashes of the keys. A running server looks every two seconds whether the \
            file has changed; the commands need no server.

            EXAMPLES
              (umask 077; token-cache access keys add backend --scope sessions > backend.key)
              token-cache access keys list
              token-cache access keys remove backend
            """,
        subcommands: [ListAccessKeys.self, AddAccessKey.self, RemoveAccessKey.self],
        defaultSubcommand: ListAccessKeys.self
    )
}

/// The command `token-cache access keys list`.
struct ListAccessKeys: ConfiguredCommand {
    static let configuration = CommandConfiguration(
        commandName: "list", abstract: "List names, scopes and times of the keys, never the keys themselves."
    )

    @OptionGroup var configuration: ConfigurationOptions
    @OptionGroup var output: OutputOptions

    func run() async throws {
        let path = try configuration.apiKeysFile()
        let keys = try APIKeys.loadExisting(path).all
        let now = Int64(Date().timeIntervalSince1970)
        let lines = keys.map { Self.line($0, now) }
        try output.print(
            ["keys": keys.map { Listed($0, now) }],
            lines.isEmpty ? "there are no API keys in \(path)" : lines.joined(separator: "\n")
        )
    }

    private static func line(_ key: APIKey, _ now: Int64) -> String {
        var text = "\(key.name)  \(APIScope.names(key.scopes).joined(separator: ", "))"
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

        init(_ key: APIKey, _ now: Int64) {
            name = key.name
            scopes = APIScope.names(key.scopes)
            createdAt = key.createdAt
            expiresAt = key.expiresAt
            isExpired = key.hasExpired(at: now)
        }

        private enum CodingKeys: String, CodingKey {
            case name, scopes, createdAt, expiresAt
            case isExpired = "expired"
        }
    }
}

/// The command `token-cache access keys add`.
struct AddAccessKey: ConfiguredCommand {
    static let configuration = CommandConfiguration(
        commandName: "add", abstract: "Make a key and print it, alone, on standard output.",
        discussion: """
            The key is shown once and cannot be recovered. If it was seen by others, remove it and make another one.

            EXAMPLES
              (umask 077; token-cache access keys add backend --scope sessions > backend.key)
              token-cache access keys add support --scope tokens:read --expires 90d
            """
    )

    @Argument(help: "Names the key in lists and in the audit log: \(APIKey.allowedNames).")
    var name: String

    @Option(
        name: .long, help: ArgumentHelp("What the key may be used for; may be repeated.", valueName: "scope"))
    var scope: [APIScope]

    @Option(
        name: .long,
        help: ArgumentHelp(
            "When the key expires: after a time such as 90d, or at 2027-01-31 or 2027-01-31T12:00:00Z (UTC).",
            valueName: "when")
    )
    var expires: KeyExpiry?

    @OptionGroup var configuration: ConfigurationOptions

    func validate() throws {
        guard APIKey.isName(name) else {
            throw ValidationError("The name of a key is not allowed; allowed is \(APIKey.allowedNames).")
        }
        guard !scope.isEmpty else {
            let scopes = APIScope.allCases.map(\.rawValue).joined(separator: ", ")
            throw ValidationError("A key needs at least one --scope: \(scopes).")
        }
    }

    func run() async throws {
        let now = Int64(Date().timeIntervalSince1970)
        let key = APIKey(name: name, scopes: Set(scope), createdAt: now, expiresAt: expires?.date(from: now))
        guard !key.hasExpired(at: now) else { throw CommandFailure("--expires is in the past") }
        let secret = APIKeySecret.random()
        guard let digest = APIKeySecret.digest(of: Array(secret.utf8).span) else {
            preconditionFailure("a new secret has the form of one")
        }
        try configuration.recordingChange(isAddition: true, name) { try add(key, secret, digest) }
    }

    private func add(_ key: APIKey, _ secret: String, _ digest: [UInt8]) throws {
        try configuration.change(begins: true) { keys in
            do throws(APIKeys.AdditionError) {
                try keys.add(key, digest: digest)
            } catch {
                let fault =
                    error == .tooMany
                    ? "there are \(APIKeys.limit) keys already; remove those that are not used"
                    : "there is a key \(name) already; choose another name, or remove that key first"
                throw CommandFailure(fault)
            }
        }
        // If the reader of the output is gone, the write then fails instead of ending the process.
        _ = signal(SIGPIPE, SIG_IGN)
        do {
            try StandardOutput.print(secret)
        } catch {
            // The key is useless, as nobody has seen its secret.
            _ = try? configuration.change { $0.remove(named: name) }
            throw error
        }
        StandardError.print(
            """
            the key \(name) is for \(APIScope.names(key.scopes).joined(separator: ", "))\
            \(key.expiresAt.map { " until \(Text.time($0))" } ?? ""); it is not shown again
            """
        )
    }
}

/// The command `token-cache access keys remove`.
struct RemoveAccessKey: ConfiguredCommand {
    static let configuration = CommandConfiguration(
        commandName: "remove", abstract: "Remove a key; a running server refuses it once it has read the file again."
    )

    @Argument(help: "The key's name, as token-cache access keys list shows it.")
    var name: String

    @OptionGroup var configuration: ConfigurationOptions

    func run() async throws {
        try configuration.recordingChange(isAddition: false, name) {
            try configuration.change { keys in
                guard keys.remove(named: name) == nil else { return }
                throw CommandFailure(
                    "there is no API key \(Text.visible(name)); token-cache access keys list shows them")
            }
        }
        try StandardOutput.print(
            "the key \(name) is removed; a running server refuses it once it has read the file again")
    }
}

extension ConfigurationOptions {
    /// The file of API keys.
    fileprivate func apiKeysFile() throws -> String {
        let path = try load().access.apiKeysFile
        guard path.isEmpty else { return path }
        throw CommandFailure(
            """
            access.api.keys_file is not set, so there is no place for API keys; name a file there, such as \
            /var/lib/token-cache/api-keys, and give this command the same settings as the server (--config)
            """
        )
    }

    /// Runs `body`, which changes the file, and has the change recorded in the audit log.
    ///
    /// Throws if the change could not be recorded or the server cannot use the file.
    fileprivate func recordingChange(isAddition: Bool, _ name: String, _ body: () throws -> Void) throws {
        let change = APIKeyChange(isAddition: isAddition, name: name)
        let logger = LogOutput(level: .warning, format: .text).logger
        guard let fault = try change.perform(try load(), logger: logger, body) else { return }
        let state =
            isAddition
            ? "added to the file, but the running server does not accept it yet"
            : "removed from the file, but the running server still accepts it"
        throw CommandFailure("the key \(name) is \(state): \(fault)")
    }

    /// Reads and replaces the file.
    fileprivate func change<Result>(
        begins: Bool = false, _ body: (inout APIKeys) throws -> Result
    ) throws -> Result {
        try APIKeys.change(apiKeysFile(), begins: begins, body)
    }
}

extension APIScope: ExpressibleByArgument {
    /// The names of scopes, always in the same order.
    fileprivate static func names(_ scopes: Set<APIScope>) -> [String] {
        allCases.filter(scopes.contains).map(\.rawValue)
    }
}

/// When a key expires, as an argument.
enum KeyExpiry: ExpressibleByArgument {
    case after(Int64)
    case at(Int64)

    init?(argument: String) {
        // A number without a unit could be meant as days or as a year.
        if let time = Quantities.duration(argument), time >= .seconds(1), Int(argument) == nil {
            self = .after(time.components.seconds)
        } else if let date = Self.seconds(argument) ?? Self.seconds(argument + "T00:00:00Z") {
            self = .at(date)
        } else {
            return nil
        }
    }

    private static func seconds(_ text: String) -> Int64? { ExpirationDate.seconds(Array(text.utf8).span) }

    /// In seconds since 1970.
    func date(from now: Int64) -> Int64 {
        switch self {
        case .after(let seconds): now + seconds
        case .at(let date): date
        }
    }
}
