internal import Configuration
internal import HTTP

/// Puts the settings together: flags, then the environment, then the file, then the defaults.
package struct SettingsLoader: Sendable {
    /// Values from the command line by key, for example `listen`.
    package var flags: [String: [String]] = [:]
    package var environment: [String: String] = [:]
    package var filePath: String?

    package init(flags: [String: [String]] = [:], environment: [String: String] = [:], filePath: String? = nil) {
        self.flags = flags
        self.environment = environment
        self.filePath = filePath
    }

    /// One place that settings come from.
    private struct Source {
        let reader: ConfigReader
        /// What an error message calls the place of a key.
        let place: @Sendable (Setting) -> String
        /// The key as this place writes it.
        let name: @Sendable (Setting) -> String
    }

    /// The settings, and where each came from.
    package struct Loaded: Sendable {
        package var settings = Settings()
        /// By key; what has its default is not there.
        package var origins: [String: String] = [:]
    }

    /// Reads and checks everything; the first fault is thrown.
    package func load() async throws(SettingsError) -> Settings {
        try await loadWithOrigins().settings
    }

    /// Reads and checks everything, and remembers which place each value is from.
    package func loadWithOrigins() async throws(SettingsError) -> Loaded {
        let file: SettingsFile? =
            if let filePath { try await SettingsFile(path: filePath) } else { nil }
        if let file { try checkKeys(of: file) }
        try checkEnvironment()
        let sources = sources(file)
        var loaded = Loaded()
        for setting in Setting.all {
            for source in sources {
                guard let values = Self.values(of: setting, in: source.reader) else { continue }
                let isCountRight = setting.isList || values.count == 1
                guard isCountRight, setting.apply(values, &loaded.settings) else {
                    throw .notAllowed(
                        source: source.place(setting), key: source.name(setting),
                        found: Self.quoted(values), allowed: setting.allowed
                    )
                }
                loaded.origins[setting.key] = source.place(setting)
                break
            }
        }
        try checkTogether(loaded.settings)
        return loaded
    }

    private func sources(_ file: SettingsFile?) -> [Source] {
        let flagValues = flags.map { key, values in
            (
                AbsoluteConfigKey(key.split(separator: ".").map(String.init)),
                ConfigValue(.stringArray(values), isSecret: false)
            )
        }
        var sources = [
            Source(
                reader: ConfigReader(
                    provider: InMemoryProvider(values: Dictionary(flagValues) { first, _ in first })
                ),
                place: { _ in "command line" },
                name: { "--" + $0.key.map { $0 == "_" ? "-" : String($0) }.joined() }
            ),
            Source(
                reader: ConfigReader(
                    provider: EnvironmentVariablesProvider(environmentVariables: environment)
                ).scoped(to: "token_cache"),
                place: { _ in "environment" },
                name: { $0.environmentName }
            ),
        ]
        if let file {
            sources.append(
                Source(reader: file.reader, place: { file.place(of: $0.key) }, name: { $0.key })
            )
        }
        return sources
    }

    /// The values of a setting in one place, nil when it has none.
    ///
    /// A scalar counts as a list of one.
    private static func values(of setting: Setting, in reader: ConfigReader) -> [String]? {
        let key = ConfigKey(setting.key.split(separator: ".").map(String.init))
        if setting.isList { return reader.stringArray(forKey: key) ?? reader.string(forKey: key).map { [$0] } }
        return reader.string(forKey: key).map { [$0] } ?? reader.stringArray(forKey: key)
    }

    private static func quoted(_ values: [String]) -> String {
        let text = values.map { "\"\($0)\"" }.joined(separator: ", ")
        return values.count == 1 ? text : "[\(text)]"
    }

    // MARK: - Checks

    private func checkKeys(of file: SettingsFile) throws(SettingsError) {
        let known = Set(Setting.all.map(\.key))
        for section in file.lines.keys.sorted() where known.contains(where: { $0.hasPrefix(section + ".") }) {
            throw .notAllowed(
                source: file.place(of: section), key: section, found: "a value",
                allowed: "a section with "
                    + known.filter { $0.hasPrefix(section + ".") }.map { String($0.dropFirst(section.count + 1)) }
                    .sorted().joined(separator: ", ")
            )
        }
        let unknown = file.lines.filter { !known.contains($0.key) }.sorted { $0.value < $1.value }
        if let first = unknown.first {
            throw .unknownKey(
                source: file.place(of: first.key), key: first.key,
                suggestion: Self.nearest(to: first.key, among: Setting.all.map(\.key))
            )
        }
    }

    /// A mistyped variable must not be passed over: it may have been meant to make the server safer.
    private func checkEnvironment() throws(SettingsError) {
        let known = Set(Setting.all.map(\.environmentName))
        for name in environment.keys.sorted()
        where name.hasPrefix("TOKEN_CACHE_") && !known.contains(name) && !Self.isOfKubernetes(name) {
            throw .unknownKey(
                source: "environment", key: name,
                suggestion: Self.nearest(to: name, among: Setting.all.map(\.environmentName))
            )
        }
    }

    /// Kubernetes and Docker links set these for a service that is called token-cache.
    private static func isOfKubernetes(_ name: String) -> Bool {
        name == "TOKEN_CACHE_SERVICE_HOST" || name.hasPrefix("TOKEN_CACHE_SERVICE_PORT")
            || name == "TOKEN_CACHE_PORT" || name.hasPrefix("TOKEN_CACHE_PORT_")
    }

    private func checkTogether(_ settings: Settings) throws(SettingsError) {
        guard settings.limits.head >= settings.limits.requestLine else {
            throw .contradiction(
                """
                limits.head is \(Quantities.text(bytes: settings.limits.head)), less than limits.request_line with \
                \(Quantities.text(bytes: settings.limits.requestLine)); the head includes the request line
                """
            )
        }
        // A body whose buffer has just doubled, and the row that is made of it.
        guard settings.heldLimit >= 4 * settings.limits.body else {
            throw .contradiction(
                """
                limits.buffers is \(Quantities.text(bytes: settings.heldLimit)), too little for limits.body with \
                \(Quantities.text(bytes: settings.limits.body)): one client can take four times a body
                """
            )
        }
        guard settings.store.queueLimit >= 2 * settings.limits.body else {
            throw .contradiction(
                """
                store.queue.max_bytes is \(Quantities.text(bytes: settings.store.queueLimit)), too little for limits.body \
                with \(Quantities.text(bytes: settings.limits.body)): allowed is at least twice that
                """
            )
        }
        let (certificates, keys) = (settings.tls.certificates.count, settings.tls.privateKeys.count)
        guard certificates == keys else {
            throw .contradiction(
                "tls.certificate has \(certificates) files and tls.private_key \(keys); each certificate needs its key"
            )
        }
        if let address = settings.listen.first(where: \.isTLS), certificates == 0 {
            throw .contradiction("listen has \(address), and tls.certificate and tls.private_key name no files for it")
        }
        var seen: Set<ListenAddress> = []
        for address in settings.listen where !address.isChosenBySystem && !seen.insert(address).inserted {
            throw .contradiction("listen has \(address) twice; each address can be listened on once")
        }
    }

    /// The candidate with the fewest edits, when they are few enough for a slip of the hand.
    private static func nearest(to text: String, among candidates: [String]) -> String? {
        let ranked = candidates.map { (candidate: $0, distance: distance(text, $0)) }
        guard let best = ranked.min(by: { $0.distance < $1.distance }) else { return nil }
        return best.distance <= max(2, text.count / 4) ? best.candidate : nil
    }

    /// Levenshtein's distance.
    private static func distance(_ first: String, _ second: String) -> Int {
        let second = Array(second)
        var row = Array(0...second.count)
        for (line, character) in first.enumerated() {
            var diagonal = row[0]
            row[0] = line + 1
            for column in second.indices {
                let replaced = diagonal + (character == second[column] ? 0 : 1)
                diagonal = row[column + 1]
                row[column + 1] = min(replaced, diagonal + 1, row[column] + 1)
            }
        }
        return row[second.count]
    }
}

extension Settings {
    /// All settings in effect, one a line, as the configuration file would have them.
    package var listing: String {
        Setting.all.map { "\($0.key): \($0.show(self))" }.joined(separator: "\n")
    }
}
