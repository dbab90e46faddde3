/// What becomes of settings that are read while the server runs: some take effect at once, the rest at the next start.
package struct SettingsChange: Sendable {
    /// What is in force once the change has been made.
    package let settings: Settings
    /// The settings that change now, such as `limits.body from 1 MiB to 2 MiB`.
    package let made: [String]
    /// Those that need a restart, such as `loops stays 2 until a restart, not 4`.
    package let postponed: [String]

    /// - Parameters:
    ///   - running: What is in force.
    ///   - wanted: What was read.
    ///   - takesTLS: Whether certificates can be changed: there are listeners that have some.
    package init(from running: Settings, to wanted: Settings, takesTLS: Bool) {
        var settings = running
        settings.admin.hosts = wanted.admin.hosts
        settings.paths = wanted.paths
        settings.readsJSON = wanted.readsJSON
        settings.https = wanted.https
        // The listeners cannot do without.
        if takesTLS && !wanted.tls.certificates.isEmpty { settings.tls = wanted.tls }
        settings.trustedProxies = wanted.trustedProxies
        settings.logLevel = wanted.logLevel
        settings.logFormat = wanted.logFormat
        settings.accessLog = wanted.accessLog
        settings.accessLogFile = wanted.accessLogFile
        settings.hasRequestIDs = wanted.hasRequestIDs
        settings.drainTimeout = wanted.drainTimeout
        settings.limits = wanted.limits
        settings.connectionLimit = wanted.connectionLimit
        settings.heldLimit = wanted.heldLimit
        settings.timeouts = wanted.timeouts
        settings.retention = wanted.retention
        self.settings = settings
        made = Setting.all.compactMap { setting in
            let (old, new) = (setting.show(running), setting.show(settings))
            return old == new ? nil : "\(setting.key) from \(old) to \(new)"
        }
        postponed = Setting.all.compactMap { setting in
            let (old, new) = (setting.show(settings), setting.show(wanted))
            return old == new ? nil : "\(setting.key) stays \(old) until a restart, not \(new)"
        }
    }
}
