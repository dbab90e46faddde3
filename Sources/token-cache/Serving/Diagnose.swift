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

    @OptionGroup var serverUser: ServerUserOptions

    @Flag(help: "Also print what is worth knowing and needs no action.")
    var verbose = false

    func run() async throws {
        let report = try await report()
        try output.print(report, DoctorText(isColored: DoctorText.wantsColors, isVerbose: verbose).text(of: report))
        if report.problems > 0 { throw ExitCode.failure }
    }

    private func report() async throws -> DoctorReport {
        let user = try serverUser.becomeOther() ?? found()
        guard OtherUsersProcess.isNeeded(user) else { return await examine(user) }
        do throws(OtherUsersProcess.Obstacle) {
            return try DoctorReport(by: user, serverUser.arguments)
        } catch {
            var report = await examine(user)
            report.noteObstacle(error, user)
            return report
        }
    }

    private func examine(_ user: ServerUser) async -> DoctorReport {
        await Doctor(options.loader(listen: addresses.listen), for: user, version: Version.text).examine()
    }

    private func found() throws -> ServerUser {
        do throws(ServerUser.Fault) {
            return try ServerUser.find(serverUser.user, options.loader(listen: addresses.listen))
        } catch {
            throw options.fault("\(error)")
        }
    }
}
