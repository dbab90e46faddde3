import EventLoop
import FoundationEssentials
import Glibc
import Server
package import Settings
import System
package import TokenStore

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
        var names = [
            "token-cache \(version)", "OpenSSL \(WatchedCertificates.libraryVersion)", "Linux \(KernelRelease.present)",
        ]
        for name in [StoreSelection.clientLibrary, store.map { "\($0.name) \($0.version)" }].compactMap(\.self)
        where !names.contains(name) {
            names.append(name)
        }
        return names.map { .ok("Versions", $0) }
    }

    /// Warns if the operator probably meant the installed server.
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

    package func examine() -> DoctorReport {
        let loaded: SettingsLoader.Loaded
        do {
            loaded = try loader.loadWithOrigins()
        } catch {
            var findings = versions(nil) + error.each.map { .problem("Settings", $0) }
            findings.append(
                .warning(
                    "Settings", "the files and addresses of the settings were not checked",
                    "correct the settings, and run the doctor again"
                )
            )
            return DoctorReport(findings)
        }
        let settings = loaded.settings
        let directory = settings.dataDirectoryPath
        // If the settings describe no store of this program, `start` reports that.
        let provider = try? StoreSelection.provider(settings)
        let server = RunningServer(directory: directory)
        var findings = versions(provider?.software) + user(directory)
        findings.append(.ok("Settings", loader.filePath.map { "\($0) can be read" } ?? "no settings file is used"))
        if let path = loader.filePath { findings += FileCheck.settingsFile(path) }
        findings += forgottenFile(directory)
        findings += server.findings(version: version) + FolderCheck.findings(directory, provider)
        // A running server has warned of its own limit.
        if case .none = server, let (fault, advice) = Server.memoryShortage(settings, limit: SystemMemory.bytes) {
            findings.append(.warning("Memory", fault, advice))
        }
        if let provider, provider.isShared || StartCheck.canUse(directory) {
            findings += StoreCheck(settings: settings, provider: provider, directory: directory, server: server)
                .findings()
        }
        findings += start(settings)
        let values = Setting.all.map {
            DoctorReport.Value(
                key: $0.key, value: $0.show(settings), default: $0.default, origin: loaded.origins[$0.key] ?? "default")
        }
        // A file that several settings name is reported once.
        var seen: Set<String> = []
        return DoctorReport(findings.filter { seen.insert($0.text).inserted }, values)
    }

    /// Reports whose rights the doctor has; they are the server's only if its user, who owns the data folder, runs it.
    private func user(_ directory: String) -> [Finding] {
        let isService = Self.isUnitInstalled
        let unit = "systemctl start token-cache-doctor, and look with journalctl -eu token-cache-doctor"
        let tried = "everything was tried with the rights of \(UserName.present)"
        var findings = [Finding.ok("User", tried)]
        // The folder of a pod's volume is root's, whoever the server's user is.
        if let status = FileStatus(directory), status.user != geteuid(), status.volumeGroup == nil {
            let name = UserName.of(status.user)
            let command = "runuser -u \(name) -- token-cache doctor, with the same options"
            findings = [
                .warning(
                    "User", "\(directory) is owned by \(name), and \(tried)",
                    "look as the server's user: as root, \(isService ? unit : command)")
            ]
        }
        guard isService else { return findings }
        return findings + [
            .ok("Service", "what the unit of the service keeps from the server was not tried: as root, \(unit)")
        ]
    }

    /// Whether a unit that runs the doctor as the service is installed, and has not started this process.
    private static var isUnitInstalled: Bool {
        let variables = ProcessInfo.processInfo.environment
        guard variables["INVOCATION_ID"] == nil else { return false }
        // As systemd searches them (systemd.unit(5)).
        let folders = variables["SYSTEMD_UNIT_PATH"] ?? "/etc/systemd/system:/usr/lib/systemd/system"
        return folders.split(separator: ":").contains { FileStatus("\($0)/token-cache-doctor.service") != nil }
    }

    /// Reports what would make a start fail, and private keys that others may read.
    private func start(_ settings: Settings) -> [Finding] {
        let (faults, remarks, warnings) = StartCheck.findings(settings)
        var findings = faults.map { Finding.problem("Start", $0) }
        if findings.isEmpty {
            let isServing = DataDirectory.holder(of: settings.dataDirectoryPath) != nil
            findings = (isServing ? [] : ClientListeners.occupied(settings)).map { fault in
                let text = "\(fault)".prefix { $0 != ";" }
                let advice = "free the address, or choose another, unless token-cache.socket has it for the service"
                return .warning("Start", "\(text)", advice)
            }
        }
        if findings.isEmpty { findings = [.ok("Start", "a start finds the files and addresses of the settings")] }
        findings += remarks.map { .ok("Start", $0) } + warnings.map { .warning("Start", $0) }
        return findings + settings.tls.privateKeys.flatMap { FileCheck.privateKey($0, "Start") }
    }
}

/// The findings of all checks, and the settings.
package struct DoctorReport: Encodable, Sendable {
    /// A setting in force.
    package struct Value: Encodable, Sendable {
        package let key: String
        /// In the syntax of the settings file.
        package let value: String
        /// In the same syntax.
        package let `default`: String
        /// `default`, `environment`, `command line`, or a file and a line.
        package let origin: String
    }

    package let findings: [Finding]
    /// Empty when the settings cannot be read.
    package let settings: [Value]
    package let problems: Int
    package let warnings: Int

    init(_ findings: [Finding], _ settings: [Value] = []) {
        (self.findings, self.settings) = (findings, settings)
        problems = findings.count { $0.state == .problem }
        warnings = findings.count { $0.state == .warning }
    }
}
