internal import EventLoop
internal import FoundationEssentials
internal import Glibc
package import Settings
internal import System
internal import TokenStore

/// Checks everything that a server needs, and reports each problem with what to do about it.
///
/// Changes nothing, and reports no secrets.
package struct Doctor: Sendable {
    private let loader: SettingsLoader
    private let version: String

    /// - Parameters:
    ///   - loader: Finds the settings as the server does.
    ///   - version: This program's version.
    package init(_ loader: SettingsLoader, version: String) {
        self.loader = loader
        self.version = version
    }

    /// The versions of what the server runs on.
    private func versions(_ store: StoreSoftware?) -> [Finding] {
        let kernel = (try? String(contentsOfFile: "/proc/sys/kernel/osrelease", encoding: .utf8)) ?? "unknown"
        var names = [
            "token-cache \(version)", "OpenSSL \(TLSContext.libraryVersion)",
            "Linux \(kernel.prefix { !$0.isNewline })",
        ]
        for name in [StoreSelection.clientLibrary, store.map { "\($0.name) \($0.version)" }].compactMap(\.self)
        where !names.contains(name) {
            names.append(name)
        }
        return names.map { .ok("Versions", $0) }
    }

    /// Warns if what is looked at is probably not what the operator means.
    private func forgottenFile(_ directory: String) -> [Finding] {
        guard let file = loader.forgottenFile else { return [] }
        return [
            .warning(
                "Settings",
                "no settings file was named, and the data folder \(directory) of the defaults does not exist, but \(file) does",
                "to look at the installed server, run token-cache doctor --config \(file)"
            )
        ]
    }

    /// Warns about a database whose identity is not verified.
    private static func exposure(_ settings: Settings) -> [Finding] {
        guard let (fault, advice) = settings.storeURL?.weakEncryption else { return [] }
        return [.warning("Store", fault, advice)]
    }

    /// Warns about settings without effect.
    private static func contradictions(_ settings: Settings) -> [Finding] {
        guard settings.accessLog == .off, !settings.accessLogFile.isEmpty else { return [] }
        return [
            .warning(
                "Settings",
                "access_log_file is \(settings.accessLogFile), but access_log is off: nothing is written there",
                "set access_log to combined or json, or leave access_log_file empty"
            )
        ]
    }

    package func examine() async -> DoctorReport {
        let loaded: SettingsLoader.Loaded
        do throws(SettingsError) {
            loaded = try loader.loadWithOrigins()
        } catch {
            var findings = versions(nil) + error.each.map { .problem("Settings", $0) }
            findings.append(
                .warning(
                    "Settings", "the files and addresses of the settings were not checked",
                    "correct the settings, and run the doctor again"
                )
            )
            return DoctorReport(findings: findings + MachineCheck.clock(now: Int64(time(nil))))
        }
        let settings = loaded.settings
        var findings: [Finding] = []
        var provider: (any StoreProvider)?
        do throws(StoreOpenError) {
            provider = try StoreSelection.provider(settings)
        } catch {
            findings.append(.problem("Store", error))
        }
        findings = versions(provider?.software) + findings
        let directory = settings.dataDirectoryPath
        let rights = Rights(directory: directory)
        findings += rights.findings
        let server = RunningServer(directory: directory)
        findings.append(.ok("Settings", loader.filePath.map { "\($0) can be read" } ?? "no settings file is used"))
        if let path = loader.filePath { findings += FileCheck.settingsFile(path) }
        findings += forgottenFile(directory)
        findings += Self.contradictions(settings)
        findings += Self.exposure(settings)
        findings += server.findings(version: version)
        findings += ListenerCheck(rights, server).findings(settings)
        findings += AccessCheck.findings(settings, rights, now: Int64(time(nil)))
        findings += FolderCheck(rights).findings(directory, provider)
        if let provider {
            findings += await StoreCheck(settings, provider, rights, directory: directory, server: server).findings()
        }
        findings += CertificateCheck.findings(settings, rights, now: Int64(time(nil)))
        findings += KeySetCheck.findings(settings, rights)
        findings += LogCheck.findings(settings, rights, server)
        findings += MachineCheck.findings(settings, server)
        let values = Setting.all.map {
            DoctorReport.Value(
                key: $0.key, value: $0.show(settings), default: $0.default, origin: loaded.origins[$0.key] ?? "default")
        }
        // Such as those about a file that several settings name.
        var seen: Set<Finding> = []
        return DoctorReport(findings: findings.filter { seen.insert($0).inserted }, settings: values)
    }
}

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

    /// A problem from an error, or its text, that says after a semicolon what to do.
    static func problem(_ topic: String, _ error: some CustomStringConvertible) -> Finding {
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
