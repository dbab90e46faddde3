/// The effect of settings that are read while the server runs: some change at once, the others at the next start.
package struct SettingsChange: Sendable {
    /// The settings in effect after the change.
    package let settings: Settings
    /// The settings that change at once, such as `limits.body from 1 MiB to 2 MiB`.
    package let made: [String]
    /// Those that need a restart, such as `loops stays 2 until a restart, not 4`.
    package let postponed: [String]

    /// - Parameters:
    ///   - running: The settings in effect.
    ///   - wanted: The settings that were read.
    ///   - takesTLS: Whether there are listeners with certificates, which then can change.
    package init(from running: Settings, to wanted: Settings, takesTLS: Bool) {
        // These listeners need at least one certificate.
        let takesCertificates = takesTLS && !wanted.tls.certificates.isEmpty
        var settings = running
        for setting in Setting.all {
            switch setting.effect {
            case .atReload: setting.copy(wanted, &settings)
            case .atReloadOfCertificates: if takesCertificates { setting.copy(wanted, &settings) }
            case .atStart: break
            }
        }
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
