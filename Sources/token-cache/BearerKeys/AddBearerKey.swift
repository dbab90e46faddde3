import ArgumentParser
import FoundationEssentials
import TokenService

/// The commands such as `token-cache access keys add`.
struct AddBearerKey<Scope: CommandKeyScope>: AsyncParsableCommand {
    static var configuration: CommandConfiguration {
        CommandConfiguration(
            commandName: "add", abstract: "Make a key and print it, alone, on standard output.",
            discussion: """
                The key is shown once and cannot be recovered. If it was seen by others, remove it and make another one.

                EXAMPLES
                \(Scope.examplesOfAdding)
                """
        )
    }

    @Argument(help: "Names the key in lists and in the audit log: \(BearerKey<Scope>.allowedNames).")
    var name: String

    @Option(
        name: .long, help: ArgumentHelp("What the key may be used for; may be repeated.", valueName: "scope"))
    var scope: [Scope]

    @Option(
        name: .long,
        help: ArgumentHelp(
            "When the key expires: after a time such as 90d, or at 2027-01-31 or 2027-01-31T12:00:00Z (UTC).",
            valueName: "when")
    )
    var expires: KeyExpiry?

    @OptionGroup var options: BearerKeyOptions<Scope>

    func validate() throws {
        guard BearerKey<Scope>.isName(name) else {
            throw ValidationError("The name of a key is not allowed; allowed is \(BearerKey<Scope>.allowedNames).")
        }
        guard !scope.isEmpty else {
            let scopes = Scope.allCases.map(\.rawValue).joined(separator: ", ")
            throw ValidationError("A key needs at least one --scope: \(scopes).")
        }
    }

    func run() async throws {
        let now = Int64(Date().timeIntervalSince1970)
        let key = BearerKey<Scope>(name: name, scopes: Set(scope), createdAt: now, expiresAt: expires?.date(from: now))
        guard !key.hasExpired(at: now) else { throw options.configuration.fault("--expires is in the past") }
        let secret = try BearerKeySecret<Scope>.random()
        guard let digest = try BearerKeySecret<Scope>.digest(of: Array(secret.utf8).span) else {
            preconditionFailure("a new secret has the form of one")
        }
        try options.recordingChange(isAddition: true, name) { try add(key, secret, digest) }
    }

    private func add(_ key: BearerKey<Scope>, _ secret: String, _ digest: [UInt8]) throws {
        try options.change { keys in
            do throws(BearerKeys<Scope>.AdditionError) {
                try keys.add(key, digest: digest)
            } catch {
                let fault =
                    error == .tooMany
                    ? "there are \(BearerKeys<Scope>.limit) keys already; remove those that are not used"
                    : "there is a key \(name) already; choose another name, or remove that key first"
                throw options.configuration.fault(fault)
            }
        }
        do {
            try StandardOutput.print(secret)
        } catch {
            // The key is of no use: its secret was not printed, so nobody knows it.
            _ = try? options.change { $0.remove(named: name) }
            throw error
        }
        StandardError.print(
            """
            the key \(name) is for \(BearerKey<Scope>.names(key.scopes).joined(separator: ", "))\
            \(key.expiresAt.map { " until \(Text.time($0))" } ?? ""); it is not shown again
            """
        )
    }
}
