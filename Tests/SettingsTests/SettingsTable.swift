import Settings

/// Writes the table of all settings in config/README.md.
///
/// Only config/token-cache.yaml says what they are for.
enum SettingsTable {
    static let (begin, end) = ("<!-- settings:begin -->", "<!-- settings:end -->")

    /// The table between its marks.
    static var text: String {
        let rows = Setting.all.map { setting in
            [
                code(setting.key) + (setting.option.map { " (\(code($0)))" } ?? ""), value(setting),
                setting.effect == .atStart ? "no" : "yes",
            ]
        }
        let header = [["key", "default", "reload"], Array(repeating: "---", count: 3)]
        let lines = (header + rows).map { cells in
            "| " + cells.map { $0.replacing("|", with: "\\|") }.joined(separator: " | ") + " |"
        }
        return ([begin] + lines + [end]).joined(separator: "\n")
    }

    private static func value(_ setting: Setting) -> String {
        let values = setting.values(Settings())
        if values.isEmpty { return "none" }
        return values == [""] ? "empty" : values.map(code).joined(separator: ", ")
    }

    private static func code(_ text: String) -> String { "`\(text)`" }
}
