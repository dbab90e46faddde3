import ArgumentParser
import Operations
import TokenStore

/// The command `token-cache doctor`.
struct Diagnose: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "doctor",
        abstract: "When something is wrong: check everything that the server needs, and say how to mend it.",
        discussion: """
            It changes nothing, and works whether or not the server is running. It reads the settings as serve does. The exit \
            status is 1 if there is a problem; warnings leave it at 0.

            It has only the rights of the user who runs it, so run it as the server's user: with the package, \
            systemctl start token-cache-doctor; otherwise, for example, with runuser.

            EXAMPLES
              token-cache doctor
              token-cache doctor --config /etc/token-cache/token-cache.yaml --json
              systemctl start token-cache-doctor; journalctl -eu token-cache-doctor
              runuser -u nobody -- token-cache doctor --config token-cache.yaml
            """
    )

    @OptionGroup var serving: ServingOptions
    @OptionGroup var options: ConfigurationOptions
    @OptionGroup var output: OutputOptions

    func run() async throws {
        let report = Doctor(options.loader(serving), version: Version.text).examine()
        try output.print(report, DoctorText.text(of: report))
        if report.problems > 0 { throw ExitCode.failure }
    }
}

/// Formats the doctor's report as text: one line per finding, with the advice below it.
enum DoctorText {
    static func text(of report: DoctorReport) -> String {
        var lines: [String] = []
        var topic = ""
        for finding in report.findings {
            if finding.topic != topic {
                if topic == "Settings" { lines += settings(report) }
                topic = finding.topic
                lines.append(topic)
            }
            lines.append("  \(word(finding.state))\(finding.text)")
            if !finding.advice.isEmpty { lines.append("           -> \(finding.advice)") }
        }
        lines.append("")
        lines.append("\(Text.count(report.problems, "problem")), \(Text.count(report.warnings, "warning"))")
        return lines.joined(separator: "\n")
    }

    /// The settings that differ from their defaults, and the number of the others.
    private static func settings(_ report: DoctorReport) -> [String] {
        guard !report.settings.isEmpty else { return [] }
        // Compares values rather than sources: the package's settings file sets many settings to their defaults.
        let set = report.settings.filter { $0.value != $0.default }
        let rest =
            "\(report.settings.count - set.count) settings have their defaults; token-cache check-config shows all"
        return (set.map { "\($0.key): \($0.value) (\($0.origin))" } + [rest]).map { "  \(word(.ok))\($0)" }
    }

    private static func word(_ state: Finding.State) -> String {
        state.rawValue + String(repeating: " ", count: max(0, 9 - state.rawValue.count))
    }
}
