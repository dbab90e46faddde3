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

            It tries everything with the rights of whoever runs it, so run it as the server's user: with the package, \
            systemctl start token-cache-doctor; otherwise, for example, with runuser.

            EXAMPLES
              token-cache doctor
              token-cache doctor --config /etc/token-cache/token-cache.yaml --json
              systemctl start token-cache-doctor; journalctl -eu token-cache-doctor
              runuser -u nobody -- token-cache doctor --config token-cache.yaml
            """
    )

    @OptionGroup var addresses: ListenOptions
    @OptionGroup var options: ConfigurationOptions
    @OptionGroup var output: OutputOptions

    @Flag(help: "Also print what is worth knowing and needs no action.")
    var verbose = false

    func run() async throws {
        let report = await Doctor(options.loader(listen: addresses.listen), version: Version.text).examine()
        try output.print(report, DoctorText(isColored: DoctorText.wantsColors, isVerbose: verbose).text(of: report))
        if report.problems > 0 { throw ExitCode.failure }
    }
}
