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

    /// Whether the operator has given a setting a value, even if that is its default.
    package func isSet(_ key: String) -> Bool { origins[key] != nil }

    /// Such as `environment`, `command line` or `/etc/token-cache.yaml, line 3`; nil for a default.
    package func origin(of setting: Setting) -> String? { origins[setting.key] }

    /// The value that will take effect at the next start, as text from `Setting.show`; nil if it is already in force.
    package func postponedValue(of setting: Setting) -> String? { postponed[setting.key] }
}
