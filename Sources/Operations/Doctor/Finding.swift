/// The result of one check.
package struct Finding: Hashable, Codable, Sendable {
    package enum State: String, Codable, Sendable {
        case ok
        /// The server works, but may stop working, or could work better.
        case warning
        /// The server cannot work, or is not secure.
        case problem
    }

    /// The heading that the finding is printed under.
    package let topic: String
    package let state: State
    package let text: String
    /// What to do; empty when the state is `ok`.
    package let advice: String
    /// What is worth knowing although nothing has to be done about it; nil for most findings.
    package var detail: String?

    static func ok(_ topic: String, _ text: String, detail: String? = nil) -> Finding {
        Finding(topic: topic, state: .ok, text: text, advice: "", detail: detail)
    }

    static func warning(_ topic: String, _ text: String, _ advice: String) -> Finding {
        Finding(topic: topic, state: .warning, text: text, advice: advice)
    }

    static func problem(_ topic: String, _ text: String, _ advice: String) -> Finding {
        Finding(topic: topic, state: .problem, text: text, advice: advice)
    }

    /// A problem from an error whose text says after a semicolon what to do.
    static func problem(_ topic: String, _ error: some Error & CustomStringConvertible) -> Finding {
        let parts = "\(error)".split(separator: "; ", maxSplits: 1).map(String.init)
        return problem(topic, parts[0], parts.count == 2 ? parts[1] : "correct that, and run the doctor again")
    }
}

/// The findings of all checks, and the settings.
package struct DoctorReport: Codable, Sendable {
    /// A setting in force.
    package struct Value: Codable, Sendable {
        package let key: String
        /// In the syntax of the settings file.
        package let value: String
        /// In the same syntax.
        package let `default`: String
        /// `default`, `environment`, `command line`, or a file and a line.
        package let origin: String
    }

    package var findings: [Finding]
    /// Empty when the settings cannot be read.
    package var settings: [Value] = []

    package var problems: Int { findings.count { $0.state == .problem } }
    package var warnings: Int { findings.count { $0.state == .warning } }

    private enum CodingKeys: CodingKey {
        case findings, settings, problems, warnings
    }

    package init(findings: [Finding], settings: [Value] = []) {
        self.findings = findings
        self.settings = settings
    }

    package init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        findings = try container.decode([Finding].self, forKey: .findings)
        settings = try container.decode([Value].self, forKey: .settings)
    }

    package func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(findings, forKey: .findings)
        try container.encode(settings, forKey: .settings)
        try container.encode(problems, forKey: .problems)
        try container.encode(warnings, forKey: .warnings)
    }
}
