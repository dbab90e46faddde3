internal import Glibc
package import Settings
internal import TokenStore

/// Looks at everything that a server needs, and says what is wrong with it.
///
/// Changes nothing, and shows nothing that is secret.
package struct Doctor: Sendable {
    private let loader: SettingsLoader
    private let version: String

    /// - Parameters:
    ///   - loader: Finds the settings as the server does.
    ///   - version: Of this program.
    package init(_ loader: SettingsLoader, version: String) {
        self.loader = loader
        self.version = version
    }

    /// What is set and has no effect.
    private static func contradictions(_ settings: Settings) -> [Finding] {
        guard settings.accessLog == .off, !settings.accessLogFile.isEmpty else { return [] }
        return [
            .warning(
                "Settings",
                "access_log_file is \(settings.accessLogFile), and access_log is off: nothing is written there",
                "set access_log to combined or json, or leave access_log_file empty"
            )
        ]
    }

    package func examine() async -> DoctorReport {
        var findings = LibraryCheck.findings(version: version)
        let loaded: SettingsLoader.Loaded
        do throws(SettingsError) {
            loaded = try loader.loadWithOrigins()
        } catch {
            findings.append(.problem("Settings", error))
            findings.append(
                .warning(
                    "Settings", "what the settings name was not looked at", "mend the settings, and ask again"
                )
            )
            return DoctorReport(findings: findings + MachineCheck.clock(now: Int64(time(nil))))
        }
        let settings = loaded.settings
        let provider = StoreSelection.provider(settings)
        findings.append(LibraryCheck.finding(provider.software))
        let directory = settings.dataDirectoryPath
        let server = RunningServer(directory: directory, provider.examiner)
        findings.append(.ok("Settings", loader.filePath.map { "\($0) can be read" } ?? "there is no file (--config)"))
        if let path = loader.filePath { findings += FileCheck.settingsFile(path) }
        findings += Self.contradictions(settings)
        findings += server.findings(version: version)
        findings += ListenerCheck.findings(settings, server)
        findings += FolderCheck.findings(directory, storeFiles: provider.fileNames)
        findings += await StoreCheck(settings, provider.examiner, directory: directory, server: server).findings()
        findings += CertificateCheck.findings(settings, now: Int64(time(nil)))
        findings += MachineCheck.findings(settings, server)
        let values = Setting.all.map {
            DoctorReport.Value(key: $0.key, value: $0.show(settings), origin: loaded.origins[$0.key] ?? "default")
        }
        return DoctorReport(findings: findings, settings: values)
    }
}
