import System

/// Reads the settings: flags override the environment, the environment overrides the file, the file overrides the defaults.
package struct SettingsLoader: Sendable {
    /// Values of the command line, by the setting's key.
    package var flags: [String: [String]] = [:]
    var environment: [String: String] = [:]
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

        /// - Parameter reason: What is wrong, to be read after the name.
        func error(_ reason: String) -> SettingsError { SettingsError(place, "\(name) \(reason)") }
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
            throw SettingsError("command line", "--config is empty; name the settings file")
        }
        let file: SettingsFile? = if let filePath { try SettingsFile(path: filePath) } else { nil }
        var faults = (file?.keyFaults ?? []) + environmentFaults
        var loaded = Loaded()
        for setting in Setting.all {
            guard let found = find(setting.key, isList: setting.isList, option: setting.option, file) else { continue }
            // In this setting, the path comes after the format.
            let path = setting.key == "access_log" ? found.values.first?.drop { $0 != " " }.drop { $0 == " " } : nil
            if let reason = (found.values + [String(path ?? "")]).lazy.compactMap(Self.unexpanded).first {
                faults.append(found.error(reason))
                continue
            }
            let isCountRight = setting.isList || found.values.count == 1
            let isAllowed = isCountRight && setting.apply(found.values, &loaded.settings)
            if let fault = Self.fault(of: found, setting, isAllowed: isAllowed) {
                faults.append(fault)
                continue
            }
            loaded.origins[setting.key] = found.place
        }
        for former in FormerSetting.all {
            guard let found = find(former.key, isList: former.isList, file) else { continue }
            let reason = "is no setting any more: \(former.instead)"
            if let reason = found.values.lazy.compactMap({ Self.unexpanded($0) ?? Self.unprintable($0) }).first {
                faults.append(found.error(reason))
            } else if former.takeOver(found.values, &loaded.settings) {
                loaded.settings.warnings.append("\(found.place): \(found.name) \(reason). Remove it")
            } else {
                faults.append(found.error(reason + former.refusal))
            }
        }
        guard faults.isEmpty else { throw SettingsError(faults.flatMap(\.each).prefix(Self.faultLimit) + []) }
        try loaded.settings.checkTogether()
        return loaded
    }

    /// The default settings with the data folder that is set, whatever is wrong with other settings; nil if none is set, or it cannot
    /// be read.
    package var place: Settings? {
        var settings = Settings()
        do {
            let file: SettingsFile? = if let filePath { try SettingsFile(path: filePath) } else { nil }
            // If none is set, the setting's name may be misspelt, and the server in the default folder another one.
            guard let found = find(Setting.dataDirectory.key, isList: false, file), found.values.count == 1,
                Self.unexpanded(found.values[0]) == nil, Setting.dataDirectory.apply(found.values, &settings)
            else { return nil }
            return settings
        } catch {
            return nil
        }
    }

    /// Why a setting's values are refused; nil if they are not.
    private static func fault(of found: Found, _ setting: Setting, isAllowed: Bool) -> SettingsError? {
        // If a setting has error messages of its own, they are more helpful than this general one.
        if let reason = found.values.lazy.compactMap(Self.unprintable).first, isAllowed || setting.fault == nil {
            return found.error(reason)
        }
        return isAllowed ? nil : error(found, setting)
    }

    /// Why a value looks like shell syntax, which a shell would have replaced; nil if it does not.
    ///
    /// Docker and Kubernetes leave it as it stands in an env file. As a path it would lead to a new, empty folder.
    private static func unexpanded(_ value: String) -> String? {
        if value.hasPrefix("\"") || value.hasPrefix("'") {
            return "begins with a quotation mark, which would be a part of the value; write it without"
        }
        if value.hasPrefix("$") || value.contains("${") || value.hasPrefix("~/") {
            let name = value.hasPrefix("~/") ? "~" : "a variable"
            return "has \(name) in it, which is not replaced here; write the value itself"
        }
        return nil
    }

    /// Why a value cannot stand in one line of a settings file; nil if it can.
    ///
    /// A path with a NUL would lead to the one before the NUL.
    private static func unprintable(_ value: String) -> String? {
        let isPrintable = value.unicodeScalars.allSatisfy { scalar in
            switch scalar.properties.generalCategory {
            case .control, .lineSeparator, .paragraphSeparator: false
            default: !scalar.properties.isNoncharacterCodePoint && scalar != "\u{feff}"
            }
        }
        return isPrintable ? nil : "has a control character or a line break in it; write it without"
    }

    private static func error(_ found: Found, _ setting: Setting) -> SettingsError {
        if let fault = setting.fault {
            let reason = found.values.count == 1 ? fault(found.values[0]) : "has several values; allowed is one"
            return found.error(reason)
        }
        let isList = setting.isList && found.values.count == 1 && found.values[0].contains { ", ".contains($0) }
        let advice = isList ? "; several are written as [A, B], and a flag is given for each" : ""
        return found.error("is \(quoted(found.values)); allowed is \(setting.allowed)\(advice)")
    }

    /// The values of the first place that has the setting; nil if it keeps its default.
    private func find(_ key: String, isList: Bool, option: String? = nil, _ file: SettingsFile?) -> Found? {
        if let values = flags[key] { return Found(values: values, place: "command line", name: option ?? key) }
        let variable = Setting.environmentName(key)
        if let value = environment[variable] {
            return Found(values: isList ? Self.elements(value) : [value], place: "environment", name: variable)
        }
        guard let file, let entry = file[key] else { return nil }
        return Found(values: entry.values, place: file.place(of: entry), name: key)
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
        let (names, prefix) = (Setting.all.map(\.environmentName), Setting.environmentPrefix)
        let known = Set(names + FormerSetting.all.map { Setting.environmentName($0.key) } + ignoredVariables)
        return environment.keys.sorted().filter { $0.hasPrefix(prefix) && !known.contains($0) }.map { name in
            // Compared without the prefix: with it, any short name would be similar to any other.
            func rest(_ name: String) -> String { String(name.dropFirst(prefix.count)) }
            let suggestion = Suggestion.nearest(to: rest(name), among: names.map(rest))
            return .unknown("environment", name, suggestion.map { prefix + $0 })
        }
    }

    /// Variables with the program's prefix that Kubernetes makes for each Service whose name begins with token-cache, as Docker
    /// does for links; they are no settings.
    package var ignoredVariables: [String] {
        let known = Set(Setting.all.map(\.environmentName))
        return environment.keys.sorted().filter { name in
            guard name.hasPrefix(Setting.environmentPrefix), !known.contains(name) else { return false }
            if name.hasSuffix("_SERVICE_HOST") || name.contains("_SERVICE_PORT") { return true }
            // As in TOKEN_CACHE_PORT_80_TCP_ADDR.
            if name.contains(/_PORT_[0-9]+_(TCP|UDP|SCTP)/) { return true }
            // A number alone suggests a setting that does not exist.
            return name.hasSuffix("_PORT") && environment[name]?.contains("://") == true
        }
    }
}

extension SettingsLoader {
    /// Where the package keeps the server's settings.
    static let installedFile = "/etc/token-cache/token-cache.yaml"

    /// The installed settings file, if an operator has probably forgotten to name it.
    ///
    /// Nil if an option or a variable says where the tokens are, or if the default data folder exists.
    package var forgottenFile: String? {
        let places = [Setting.dataDirectory.key, "store.url"]
        let isPlaceNamed = Setting.all.contains { setting in
            places.contains(setting.key)
                && (flags[setting.key] != nil || environment[setting.environmentName] != nil)
        }
        guard filePath == nil, !isPlaceNamed, !FileStatus.exists(Settings().dataDirectoryPath),
            FileStatus.exists(Self.installedFile)
        else { return nil }
        return Self.installedFile
    }
}

/// Where the settings in force come from, and which values wait for a restart.
package struct SettingsSources: Sendable {
    private var origins: [String: String] = [:]
    private var postponed: [String: String] = [:]

    package init() {}

    /// - Parameters:
    ///   - loaded: The settings that were read last.
    ///   - inForce: Those in force, some of which stay until a restart.
    package mutating func update(from loaded: SettingsLoader.Loaded, inForce: Settings) {
        for setting in Setting.all {
            let wanted = setting.show(loaded.settings)
            if wanted == setting.show(inForce) {
                origins[setting.key] = loaded.origins[setting.key]
                postponed[setting.key] = nil
            } else {
                postponed[setting.key] = wanted
            }
        }
    }

    /// Such as `environment`, `command line` or `/etc/token-cache.yaml, line 3`; nil for a default.
    package func origin(of setting: Setting) -> String? { origins[setting.key] }

    /// The value that will take effect at the next start, as text from `Setting.show`; nil if it is already in force.
    package func postponedValue(of setting: Setting) -> String? { postponed[setting.key] }
}
