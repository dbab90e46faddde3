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

    /// The settings, and where each came from.
    package struct Loaded: Sendable {
        package var settings = Settings()
        /// By key, such as "environment"; settings with their default are not in it.
        package var origins: [String: String] = [:]
    }

    /// A setting's values in one of the places, with what an error message calls the place and the setting.
    private struct Found {
        let values: [String]
        let place: String
        let name: String
    }

    /// Reads and checks everything; the first fault is thrown.
    package func load() throws(SettingsError) -> Settings {
        try loadWithOrigins().settings
    }

    /// Reads and checks everything, and remembers which place each value is from.
    package func loadWithOrigins() throws(SettingsError) -> Loaded {
        let file: SettingsFile? = if let filePath { try SettingsFile(path: filePath) } else { nil }
        try file?.checkKeys()
        try checkEnvironment()
        var loaded = Loaded()
        for setting in Setting.all {
            guard let found = find(setting, file) else { continue }
            let isCountRight = setting.isList || found.values.count == 1
            guard isCountRight, setting.apply(found.values, &loaded.settings) else {
                throw .notAllowed(
                    source: found.place, key: found.name, found: Self.quoted(found.values), allowed: setting.allowed
                )
            }
            loaded.origins[setting.key] = found.place
        }
        try loaded.settings.checkTogether()
        return loaded
    }

    /// The first place that has a setting; nil leaves it to its default.
    private func find(_ setting: Setting, _ file: SettingsFile?) -> Found? {
        if let values = flags[setting.key] {
            return Found(values: values, place: "command line", name: setting.option ?? setting.key)
        }
        if let value = environment[setting.environmentName] {
            let values = setting.isList ? Self.elements(value) : [value]
            return Found(values: values, place: "environment", name: setting.environmentName)
        }
        guard let file, let entry = file[setting.key] else { return nil }
        return Found(values: entry.texts, place: file.place(of: entry), name: setting.key)
    }

    /// Several values of a variable have commas between them.
    private static func elements(_ text: String) -> [String] {
        text.split(separator: ",", omittingEmptySubsequences: false).map { part in
            var element = part.drop(while: \.isWhitespace)
            while element.last?.isWhitespace == true { element.removeLast() }
            return String(element)
        }
    }

    private static func quoted(_ values: [String]) -> String {
        let text = values.map { "\"\($0)\"" }.joined(separator: ", ")
        return values.count == 1 ? text : "[\(text)]"
    }

    /// Refuses variables that are no settings: a mistyped one may have been meant to make the server safer.
    private func checkEnvironment() throws(SettingsError) {
        let names = Setting.all.map(\.environmentName)
        let known = Set(names)
        for name in environment.keys.sorted()
        where name.hasPrefix(Setting.environmentPrefix) && !known.contains(name) && !Self.isOfKubernetes(name) {
            throw .unknownKey(source: "environment", key: name, suggestion: Suggestion.nearest(to: name, among: names))
        }
    }

    /// Kubernetes and Docker links set these for a service that is called token-cache.
    private static func isOfKubernetes(_ name: String) -> Bool {
        name == "TOKEN_CACHE_SERVICE_HOST" || name.hasPrefix("TOKEN_CACHE_SERVICE_PORT")
            || name == "TOKEN_CACHE_PORT" || name.hasPrefix("TOKEN_CACHE_PORT_")
    }
}
