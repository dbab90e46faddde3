import ArgumentParser
import Settings

/// The hidden command `token-cache describe-settings`, from whose output the manual page is made.
struct DescribeSettings: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "describe-settings", abstract: "Print the description of each setting as JSON.",
        shouldDisplay: false
    )

    private struct Description: Encodable {
        let key: String
        let option: String?
        let variable: String
        let `default`: String
        let allowed: String
        /// Whether a reload applies a changed value.
        let reload: Bool
        let purpose: String
    }

    func run() throws {
        let descriptions = Setting.all.map {
            Description(
                key: $0.key, option: $0.option, variable: $0.environmentName, default: $0.default, allowed: $0.allowed,
                reload: $0.effect != .atStart, purpose: $0.paragraphs[0]
            )
        }
        try StandardOutput.print(try OutputOptions.text(descriptions))
    }
}
