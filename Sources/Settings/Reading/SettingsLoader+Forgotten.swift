internal import System

extension SettingsLoader {
    /// Where the package keeps the server's settings.
    package static let installedFile = "/etc/token-cache/token-cache.yaml"

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
