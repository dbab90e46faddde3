/// The effect of settings that are read while the server runs: some change at once, the others at the next start.
package struct SettingsChange: Sendable {
    /// The settings in effect after the change.
    package let settings: Settings
    /// The settings that change at once, such as `limits.body from 1 MiB to 2 MiB`.
    package let made: [String]
    /// Those that need a restart, such as `cache.max_bytes from 64 MiB to 1 GiB`.
    package let postponed: [String]
    private let running: Settings

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
        settings.warnings = wanted.warnings
        self.running = running
        self.settings = settings
        made = Self.differences(running, settings)
        postponed = Self.differences(settings, wanted)
    }

    /// Whether a value changes at once.
    package func changes(_ place: KeyPath<Settings, some Equatable>) -> Bool {
        running[keyPath: place] != settings[keyPath: place]
    }

    private static func differences(_ old: Settings, _ new: Settings) -> [String] {
        Setting.all.compactMap { setting in
            let (old, new) = (setting.show(old), setting.show(new))
            return old == new ? nil : "\(setting.key) from \(old) to \(new)"
        }
    }
}
