import ArgumentParser
import Operations

/// The command `token-cache doctor`.
struct Diagnose: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "doctor",
        abstract:
            "Check everything that the server needs and report problems; the exit status is 1 if there is one.",
        discussion: """
            It changes nothing, and works whether or not the server is running. It reads the settings as serve does. \
            Warnings leave the exit status at 0.

            As root, it tries everything with the rights of the user that the server runs as: that of --user, of the \
            running server, of the installed unit for the data folder, or else the owner of the data folder.

            EXAMPLES
              token-cache doctor
              token-cache doctor --config /etc/token-cache/token-cache.yaml --json
              token-cache doctor --config /etc/token-cache/token-cache.yaml --user token-cache
            """
    )

    @OptionGroup var addresses: ListenOptions
    @OptionGroup var options: ConfigurationOptions
    @OptionGroup var output: OutputOptions

    @Option(help: ArgumentHelp("Check with the rights of this user, as whom the server runs.", valueName: "name"))
    var user: String?

    @Flag(help: "Also print what is worth knowing and needs no action.")
    var verbose = false

    @Option(help: .private)
    var serverUser: String?

    private var arguments: [String] { Array(CommandLine.arguments.dropFirst()) }

    func run() async throws {
        let report = try await report()
        try output.print(report, DoctorText(isColored: DoctorText.wantsColors, isVerbose: verbose).text(of: report))
        if report.problems > 0 { throw ExitCode.failure }
    }

    private func report() async throws -> DoctorReport {
        let user = try serverUser.map(other) ?? found()
        if DoctorAsUser.isNeeded(user) {
            if let report = DoctorAsUser.report(user, arguments) { return report }
            var report = await examine(user)
            report.findings.append(DoctorAsUser.failure(user))
            return report
        }
        return await examine(user)
    }

    private func examine(_ user: ServerUser) async -> DoctorReport {
        await Doctor(options.loader(listen: addresses.listen), for: user, version: Version.text).examine()
    }

    private func found() throws -> ServerUser {
        do throws(ServerUser.Fault) {
            return try ServerUser.find(user, options.loader(listen: addresses.listen))
        } catch {
            throw options.fault("\(error)")
        }
    }

    /// In the process that looks with another user's rights: becomes that user first.
    private func other(_ text: String) throws -> ServerUser {
        guard let user = DoctorAsUser.user(text) else {
            throw ValidationError("\(DoctorAsUser.option) is only for the doctor itself; use --user")
        }
        guard !DoctorAsUser.hasBecome(user) else { return user }
        throw options.fault("\(DoctorAsUser.become(user, arguments))")
    }
}
