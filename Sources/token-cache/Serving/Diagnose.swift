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

            EXAMPLES
              token-cache doctor
              token-cache doctor --config /etc/token-cache/token-cache.yaml --json
            """
    )

    @OptionGroup var addresses: ListenOptions
    @OptionGroup var options: ConfigurationOptions
    @OptionGroup var output: OutputOptions

    func run() async throws {
        let doctor = Doctor(options.loader(listen: addresses.listen), version: Version.text)
        let report = await doctor.examine()
        try output.print(report, DoctorText(isColored: DoctorText.wantsColors).text(of: report))
        if report.problems > 0 { throw ExitCode.failure }
    }
}
