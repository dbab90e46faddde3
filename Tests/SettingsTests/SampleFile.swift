@testable import Settings

/// Writes config/token-cache.yaml: every setting with its default and what it is for.
enum SampleFile {
    private static let width = 120

    private static let head = [
        "token-cache: every setting with its default.", "",
        """
        A flag overrides the environment, the environment overrides this file, and this file overrides the default. A key in \
        capitals is its variable: limits.body is TOKEN_CACHE_LIMITS_BODY; commas separate several values, as in \
        TOKEN_CACHE_LISTEN=127.0.0.1:8080,[::1]:8080. `token-cache check-config --config FILE` checks a file.
        """, "",
        """
        SIGHUP makes the server read everything again. These need a restart: \(list(Setting.keysThatNeedRestart)). The others \
        change at once, for open connections at their next request. If a setting or a certificate is wrong, nothing changes.
        """, "",
        """
        Sizes are in bytes or have a unit: KiB, MiB, GiB. Times are in seconds or have a unit: ms, s, m, h, d; those of retention \
        need one.
        """,
    ]

    static var text: String {
        var lines = head.flatMap { comment($0, indent: "") }
        var sections: [Substring] = []
        for setting in Setting.all {
            let names = setting.key.split(separator: ".")
            let common = zip(sections, names.dropLast()).prefix { $0 == $1 }.count
            if common == 0 { lines.append("") }
            sections = Array(names.dropLast())
            for level in common..<sections.count { lines.append(indent(level) + sections[level] + ":") }
            let margin = indent(sections.count)
            lines += setting.paragraphs.flatMap { comment($0, indent: margin) }
            lines += entry(margin + names[names.count - 1] + ":", setting)
        }
        return lines.joined(separator: "\n") + "\n"
    }

    private static func entry(_ key: String, _ setting: Setting) -> [String] {
        let values = setting.values(Settings())
        guard setting.isList && !values.isEmpty else { return [key + " " + setting.default] }
        let margin = String(key.prefix { $0 == " " }) + "  - "
        return [key] + values.map { margin + Setting.quoted($0) }
    }

    private static func indent(_ level: Int) -> String { String(repeating: "  ", count: level) }

    private static func list(_ names: [String]) -> String {
        names.dropLast().joined(separator: ", ") + " and " + names[names.count - 1]
    }

    /// A paragraph in lines of at most `width` columns; one that begins with a blank has its lines already.
    private static func comment(_ paragraph: String, indent: String) -> [String] {
        if paragraph.isEmpty { return [indent + "#"] }
        if paragraph.hasPrefix(" ") { return paragraph.split(separator: "\n").map { indent + "# " + $0 } }
        var lines: [String] = []
        var line = indent + "#"
        for word in paragraph.split(separator: " ") {
            if line.count + 1 + word.count > width {
                lines.append(line)
                line = indent + "#"
            }
            line += " " + word
        }
        return lines + [line]
    }
}

extension Setting {
    /// The keys whose change needs a restart; a section's name stands for its keys if all of them do.
    static var keysThatNeedRestart: [String] {
        var names: [String] = []
        for setting in all where setting.effect == .atStart {
            let name = sections(of: setting.key).first(where: isWholeAtStart) ?? setting.key
            if !names.contains(name) { names.append(name) }
        }
        return names
    }

    /// The sections that a key is in, the outermost first: `store` and `store.queue` of `store.queue.max_wait`.
    private static func sections(of key: String) -> [String] {
        let names = key.split(separator: ".")
        return (1..<names.count).map { names.prefix($0).joined(separator: ".") }
    }

    private static func isWholeAtStart(_ section: String) -> Bool {
        all.allSatisfy { !$0.key.hasPrefix(section + ".") || $0.effect == .atStart }
    }
}
