internal import Server
internal import Settings

/// The settings in force and where each of them comes from, as `/settings` returns them.
///
/// No setting has a secret as its value: keys and passwords are in files, and a URL with a password is refused.
struct ServerSettings: Encodable, Sendable {
    let settings: [Entry]

    struct Entry: Encodable, Sendable {
        let key: String
        /// As a settings file has it.
        let value: String
        let `default`: String
        /// Such as `environment`, `command line` or `/etc/token-cache.yaml, line 3`; `default` without any.
        let source: String
        /// The value that will take effect at the next start; nil if it is already in force.
        let afterRestart: String?
    }

    init(of server: Server) {
        let (inForce, sources) = (server.settingsInForce, server.settingsSources)
        settings = Setting.all.map { setting in
            Entry(
                key: setting.key, value: setting.show(inForce), default: setting.default,
                source: sources.origin(of: setting) ?? "default", afterRestart: sources.postponedValue(of: setting)
            )
        }
    }
}
