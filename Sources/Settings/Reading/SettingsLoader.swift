/// Reads the settings: flags override the environment, the environment overrides the file, the file overrides the defaults.
package struct SettingsLoader: Sendable {
    /// Values of the command line, by the setting's key.
    package var flags: [String: [String]] = [:]
    package var environment: [String: String] = [:]
    package var filePath: String?

    package init(flags: [String: [String]] = [:], environment: [String: String] = [:], filePath: String? = nil) {
        self.flags = flags
        self.environment = environment
        self.filePath = filePath
    }

    /// The settings, and where each value comes from.
    package struct Loaded: Sendable {
        package var settings = Settings()
        /// By key, such as "environment"; settings with their default are not in it.
        package var origins: [String: String] = [:]
    }

    /// The values of a setting in one place, and the names of the place and the setting for error messages.
    private struct Found {
        let values: [String]
        let place: String
        let name: String
    }

    /// The most faults that are reported at once.
    private static let faultLimit = 20

    /// Reads and checks all settings; throws all faults, or those of the file as a whole.
    package func load() throws(SettingsError) -> Settings {
        try loadWithOrigins().settings
    }

    /// Like `load`, and tells where each value comes from.
    package func loadWithOrigins() throws(SettingsError) -> Loaded {
        guard filePath != "" else {
            throw .refused(source: "command line", key: "--config", reason: "is empty; name the settings file")
        }
        let file: SettingsFile? = if let filePath { try SettingsFile(path: filePath) } else { nil }
        var faults = (file?.keyFaults ?? []) + environmentFaults
        var loaded = Loaded()
        for setting in Setting.all {
            guard let found = find(setting, file) else { continue }
            let isCountRight = setting.isList || found.values.count == 1
            let isAllowed = isCountRight && setting.apply(found.values, &loaded.settings)
            if let fault = Self.fault(of: found, setting, isAllowed: isAllowed) {
                faults.append(fault)
                continue
            }
            loaded.origins[setting.key] = found.place
        }
        if let first = faults.first {
            throw faults.count == 1 ? first : .several(Array(faults.prefix(Self.faultLimit)))
        }
        try loaded.settings.checkTogether()
        return loaded
    }

    /// Why a setting's values are refused; nil if they are not.
    private static func fault(of found: Found, _ setting: Setting, isAllowed: Bool) -> SettingsError? {
        let isPrintable = found.values.allSatisfy(Self.isPrintable)
        // If a setting has error messages of its own, they are more helpful than this general one.
        if !isPrintable, isAllowed || setting.fault == nil {
            let reason = "has a control character or a line break in it; write it without"
            return .refused(source: found.place, key: found.name, reason: reason)
        }
        return isAllowed ? nil : error(found, setting)
    }

    /// Whether a value can stand in one line of a settings file.
    ///
    /// A path with a NUL would lead to the one before the NUL.
    private static func isPrintable(_ value: String) -> Bool {
        value.unicodeScalars.allSatisfy { scalar in
            switch scalar.properties.generalCategory {
            case .control, .lineSeparator, .paragraphSeparator: false
            default: !scalar.properties.isNoncharacterCodePoint && scalar != "\u{feff}"
            }
        }
    }

    /// Describes values that are not allowed.
    private static func error(_ found: Found, _ setting: Setting) -> SettingsError {
        if let fault = setting.fault {
            let reason = found.values.count == 1 ? fault(found.values[0]) : "has several values; allowed is one"
            return .refused(source: found.place, key: found.name, reason: reason)
        }
        if let advice = setting.advice, let first = found.values.lazy.compactMap(advice).first {
            return .incomplete(source: found.place, key: found.name, found: quoted(found.values), advice: first)
        }
        return .notAllowed(
            source: found.place, key: found.name, found: quoted(found.values), allowed: setting.allowed
        )
    }

    /// The values of the first place that has the setting; nil if it keeps its default.
    private func find(_ setting: Setting, _ file: SettingsFile?) -> Found? {
        if let values = flags[setting.key] {
            return Found(values: values, place: "command line", name: setting.option ?? setting.key)
        }
        if let value = environment[setting.environmentName] {
            let values = setting.isList ? Self.elements(value) : [value]
            return Found(values: values, place: "environment", name: setting.environmentName)
        }
        // One of which the file's own faults tell.
        guard let file, let entry = file[setting.key], entry.fault == nil else { return nil }
        return Found(values: entry.texts, place: file.place(of: entry), name: setting.key)
    }

    /// The values of a variable, which commas separate.
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

    /// Variables with the program's prefix that are no settings: a mistyped one may have been meant for security.
    private var environmentFaults: [SettingsError] {
        let names = Setting.all.map(\.environmentName)
        let known = Set(names)
        let unknown = environment.keys.sorted().filter {
            $0.hasPrefix(Setting.environmentPrefix) && !known.contains($0) && !Self.isOfKubernetes($0)
        }
        return unknown.map {
            .unknownKey(source: "environment", key: $0, suggestion: Suggestion.nearest(to: $0, among: names))
        }
    }

    /// Whether Kubernetes or Docker sets the variable for a service named token-cache.
    private static func isOfKubernetes(_ name: String) -> Bool {
        name == "TOKEN_CACHE_SERVICE_HOST" || name.hasPrefix("TOKEN_CACHE_SERVICE_PORT")
            || name == "TOKEN_CACHE_PORT" || name.hasPrefix("TOKEN_CACHE_PORT_")
    }
}
