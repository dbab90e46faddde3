import Settings

/// Writes the table of all settings in config/README.md.
enum SettingsTable {
    static let (begin, end) = ("<!-- settings:begin -->", "<!-- settings:end -->")

    /// The table between its marks.
    static var text: String {
        let rows = Setting.all.map { setting in
            [
                code(setting.key) + (setting.option.map { " (\(code($0)))" } ?? ""), value(setting), allowed(setting),
                setting.effect == .atStart ? "no" : "yes", setting.paragraphs[0],
            ]
        }
        let header = [["key", "default", "allowed", "reload", "purpose"], Array(repeating: "---", count: 5)]
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

    private static func allowed(_ setting: Setting) -> String {
        setting.isList && !setting.allowed.contains("list") ? setting.allowed + "; a list" : setting.allowed
    }

    private static func code(_ text: String) -> String { "`\(text)`" }
}
