internal import FoundationEssentials
internal import Settings
internal import System

/// An installed unit of systemd's that starts a server.
struct ServerUnit {
    private let file: UnitFile
    private let name: String
    private let folders: [String]
    /// What the unit runs, from `serve` on.
    private let arguments: [String]

    var path: String { file.path }

    /// All installed units that run `token-cache serve`.
    ///
    /// - Parameter folders: Where systemd looks for units.
    static func installed(in folders: [String]) -> [ServerUnit] {
        let names = folders.flatMap { Folder.names(in: $0) ?? [] }
            .filter { $0.hasPrefix("token-cache") && $0.hasSuffix(".service") }
        return Set(names).sorted().compactMap { ServerUnit($0, folders) }
    }

    private init?(_ name: String, _ folders: [String]) {
        guard let file = UnitFile(named: name, in: folders), let command = file["Service.ExecStart"] else { return nil }
        let words = UnitFile.words(command)
        guard words.first?.hasSuffix("token-cache") == true, let verb = words.firstIndex(of: "serve") else {
            return nil
        }
        self.file = file
        self.name = name
        self.folders = folders
        arguments = Array(words[words.index(after: verb)...])
    }

    // MARK: - Whose server it starts

    /// Whether the server that it starts uses a data folder or, if that is not known, a settings file.
    func starts(directory: String?, settingsFile: String?) -> Bool {
        guard let directory else {
            guard let own = option("--config"), let settingsFile else { return false }
            return Path.resolved(own) == Path.resolved(settingsFile)
        }
        return self.directory.map { Path.resolved($0) == Path.resolved(directory) } ?? false
    }

    /// The server's data folder; nil if its settings cannot be read.
    private var directory: String? {
        var loader = SettingsLoader(environment: environment, filePath: option("--config"))
        if let directory = option("--data-directory") { loader.flags[Setting.dataDirectory.key] = [directory] }
        guard let settings = try? loader.load() else { return nil }
        guard !settings.dataDirectory.hasPrefix("/") else { return settings.dataDirectoryPath }
        let folder = URL(filePath: file["Service.WorkingDirectory"] ?? "/", directoryHint: .isDirectory)
        return URL(filePath: settings.dataDirectory, relativeTo: folder).standardizedFileURL.path
    }

    private func option(_ name: String) -> String? {
        for (index, word) in arguments.enumerated() {
            if word == name, index + 1 < arguments.count { return arguments[index + 1] }
            if word.hasPrefix(name + "=") { return String(word.dropFirst(name.count + 1)) }
        }
        return nil
    }

    private var environment: [String: String] {
        var variables: [String: String] = [:]
        for word in file.all("Service.Environment").flatMap(UnitFile.words) where word.hasPrefix("TOKEN_CACHE_") {
            let parts = word.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
            if parts.count == 2 { variables[parts[0]] = parts[1] }
        }
        return variables
    }

    // MARK: - The user

    /// `User=`, which need not exist while a service with `DynamicUser=` does not run.
    var user: String {
        file["Service.User"] ?? (isDynamic ? String(name.dropLast(".service".count)) : "root")
    }

    /// Whether the user exists only while the service runs.
    var isDynamic: Bool { file.isOn("Service.DynamicUser") }

    /// The user with the groups of the unit; nil if there is no such user.
    ///
    /// - Parameter directory: The data folder, whose owner is the user of a dynamic unit that does not run.
    func account(directory: String?) -> UserAccount? {
        guard let found = UserAccount(user) ?? (isDynamic ? dynamicAccount(directory) : nil) else { return nil }
        let group = file["Service.Group"].flatMap(Self.group) ?? found.group
        let more = file.all("Service.SupplementaryGroups").flatMap(UnitFile.words).compactMap(Self.group)
        return UserAccount(name: found.name, id: found.id, group: group, groups: found.groups + [group] + more)
    }

    /// The ids that systemd gives to dynamic users (systemd.exec(5), DynamicUser=).
    private static let dynamicIDs: ClosedRange<UInt32> = 61_184...65_519

    private func dynamicAccount(_ directory: String?) -> UserAccount {
        let owner = directory.flatMap { FileStatus($0)?.user } ?? 0
        let id = Self.dynamicIDs.contains(owner) ? owner : Self.dynamicIDs.lowerBound
        return UserAccount(name: user, id: id, group: id, groups: [id])
    }

    private static func group(_ name: String) -> UInt32? { UInt32(name) ?? UserAccount.group(named: name) }

    // MARK: - What systemd does for the server

    var support: ServiceSupport {
        let kinds = [
            ("State", "/var/lib"), ("Logs", "/var/log"), ("Runtime", "/run"), ("Cache", "/var/cache"),
        ]
        let given = kinds.flatMap { kind, folder in
            file.all("Service.\(kind)Directory").flatMap(UnitFile.words).map { word in
                // What follows a colon is the name of a link.
                "\(folder)/\(word.prefix { $0 != ":" })"
            }
        }
        let capabilities = file.all("Service.AmbientCapabilities").flatMap(UnitFile.words)
        return ServiceSupport(
            unit: path, folders: given, sockets: sockets, isDynamic: isDynamic,
            mayUseLowPorts: capabilities.contains("CAP_NET_BIND_SERVICE"),
            opensCredentials: !(file.all("Service.LoadCredential") + file.all("Service.LoadCredentialEncrypted"))
                .isEmpty
        )
    }

    /// The addresses that systemd listens on for the service: those of the socket units that are enabled for it.
    private var sockets: [String] {
        let links = folders.flatMap { Folder.names(in: "\($0)/sockets.target.wants") ?? [] }
        return Set(links).sorted().flatMap { link -> [String] in
            guard let socket = UnitFile(named: link, in: folders) else { return [] }
            let service = socket["Socket.Service"] ?? link.replacing(".socket", with: ".service")
            return service == name ? socket.all("Socket.ListenStream") : []
        }
    }
}
