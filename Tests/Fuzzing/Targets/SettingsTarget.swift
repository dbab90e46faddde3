import Settings

extension FuzzTarget {
    /// The settings file: it is read or refused with a sentence, and the listing of what was read is a file that says the same.
    static let settings = FuzzTarget(
        "settings",
        words: [
            "\n", "\n  ", ":", ": ", "- ", "[", "]", "{", "}", ",", "#", "\"", "'", "|\n", ">-\n", "&a ", "*a",
            "!!str ", "---\n",
            "...\n", "? ", "\t", "%YAML 1.1\n", "\u{feff}", "\\x00", "\\u0000", "~", "true", "off", "0", "-1", "1 KiB",
            "9999999999 GiB", "1.5 s", "1 day", "listen:", "limits:\n  body: ", "tls:\n", "https:\n  mode: ",
            "access:\n",
            "trusted_proxies: [10.0.0.0/8]", "127.0.0.1:8080", "[::1]:80", "unix:/a", "store:\n", "retention:\n",
            "log_level: ",
        ],
        mutationCount: 300
    ) { input in
        let settings: Settings
        do throws(SettingsError) {
            settings = try SettingsLoader(filePath: Files.write(input, to: "settings.yaml")).load()
        } catch {
            try require(!error.description.isEmpty, "an error says nothing")
            return
        }
        let listing = settings.listing
        do {
            let again = try SettingsLoader(filePath: Files.write(listing.utf8, to: "listing.yaml")).load()
            try compare(again.listing, listing, "the settings of the listing")
        } catch let error as SettingsError {
            throw Mismatch("the listing is refused: \(error)")
        }
    }
}
