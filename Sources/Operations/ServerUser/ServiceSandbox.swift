internal import System

/// Which paths a unit keeps from its service (systemd.exec(5), "Sandboxing"), as far as its file tells.
struct ServiceSandbox: Codable, Hashable {
    private var rules: [Rule] = []
    /// Whether the service has a root folder of its own, about whose contents nothing is known here.
    private var isUnknown = false

    private struct Rule: Codable, Hashable {
        let path: String
        let access: Access
        /// The line of the unit, such as `ProtectHome=yes`.
        let line: String
        var remedy: String?
    }

    private enum Access: Codable, Hashable {
        /// Out of reach with everything below it, even what other rules name (systemd.exec(5), InaccessiblePaths=).
        case inaccessible
        /// Hidden behind another folder, in which other rules can make nested paths visible.
        case covered
        case read, write
    }

    /// A rule that keeps the service from a path.
    struct Refusal {
        /// The line of the unit.
        let line: String
        /// How to change the unit; nil if the line itself makes that clear.
        let remedy: String?
    }

    /// - Parameters:
    ///   - unit: The unit of the service.
    ///   - folders: Those that systemd makes for the service.
    init(_ unit: UnitFile, folders: [String]) {
        isUnknown = ["RootDirectory", "RootImage"].contains { unit["Service.\($0)"] != nil }
        addProtections(unit)
        for folder in folders { rules.append(Rule(path: folder, access: .write, line: "")) }
        let lists: [(key: String, access: Access)] = [
            ("InaccessiblePaths", .inaccessible), ("TemporaryFileSystem", .covered), ("ReadOnlyPaths", .read),
            ("BindReadOnlyPaths", .read), ("ReadWritePaths", .write), ("BindPaths", .write),
        ]
        for (key, access) in lists {
            for word in unit.all("Service.\(key)").flatMap(UnitFile.words) {
                // What a specifier such as %S stands for is not known here.
                if word.contains("%") { isUnknown = true }
                var rule = Rule(path: Self.path(word, of: key), access: access, line: "\(key)=\(word)")
                if access == .inaccessible {
                    rule.remedy = "take \(word) out of \(key)=, as no other line gives access to a path below it"
                }
                rules.append(rule)
            }
        }
    }

    private mutating func addProtections(_ unit: UnitFile) {
        // Implied, whatever else the unit says of them (systemd.exec(5), DynamicUser=).
        let isDynamic = unit.isOn("Service.DynamicUser")
        func add(_ key: String, _ paths: [String], _ access: Access) {
            let value = unit["Service.\(key)"] ?? "no"
            let isOff = ["no", "false", "off", "0"].contains(value.lowercased())
            let line = isOff ? "DynamicUser=yes" : "\(key)=\(value)"
            for path in paths {
                var rule = Rule(path: path, access: access, line: line)
                if access == .inaccessible {
                    rule.remedy = """
                        \(key)=no, or \(key)=tmpfs with BindPaths= for this path; with \(line), no other line gives access to a path \
                        below \(path)
                        """
                }
                rules.append(rule)
            }
        }
        let system = isDynamic ? "strict" : unit["Service.ProtectSystem"]?.lowercased()
        if system == "strict" {
            add("ProtectSystem", ["/"], .read)
            for path in ["/dev", "/proc", "/sys"] { rules.append(Rule(path: path, access: .write, line: "")) }
        } else if system == "full" || unit.isOn("Service.ProtectSystem") {
            add("ProtectSystem", ["/usr", "/boot", "/efi"] + (system == "full" ? ["/etc"] : []), .read)
        }
        let homes = ["/home", "/root", "/run/user"]
        if unit.isOn("Service.ProtectHome") {
            add("ProtectHome", homes, .inaccessible)
        } else if unit["Service.ProtectHome"]?.lowercased() == "tmpfs" {
            add("ProtectHome", homes, .covered)
        } else if isDynamic || unit["Service.ProtectHome"]?.lowercased() == "read-only" {
            add("ProtectHome", homes, .read)
        } else if system == "strict" {
            // ProtectSystem=strict leaves them to ProtectHome=.
            for path in homes { rules.append(Rule(path: path, access: .write, line: "")) }
        }
        if isDynamic || unit.isOn("Service.PrivateTmp") { add("PrivateTmp", ["/tmp", "/var/tmp"], .covered) }
    }

    /// The path in an entry of a list, without the prefixes `-` and `+`; of a bind mount, the path that the service sees.
    private static func path(_ word: String, of key: String) -> String {
        let parts = word.drop { "-+".contains($0) }.split(separator: ":").map(String.init)
        return (key.hasPrefix("Bind") && parts.count > 1 ? parts[1] : parts.first) ?? ""
    }

    /// The rule that keeps the service from a path; nil if none does.
    ///
    /// - Parameters:
    ///   - path: Absolute.
    ///   - isWritten: Whether the service writes there.
    func refusal(of path: String, isWritten: Bool) -> Refusal? {
        guard !isUnknown, path.hasPrefix("/") else { return nil }
        let applying = rules.filter { $0.path == "/" || path == $0.path || path.hasPrefix($0.path + "/") }
        if let rule = applying.first(where: { $0.access == .inaccessible }) {
            return Refusal(line: rule.line, remedy: rule.remedy)
        }
        // Otherwise the rule for the innermost folder applies, and among several for one folder the most permissive.
        func rank(_ rule: Rule) -> (Int, Int) {
            (rule.path.utf8.count, rule.access == .write ? 2 : rule.access == .read ? 1 : 0)
        }
        guard let rule = applying.max(by: { rank($0) < rank($1) }), rule.access != .write,
            isWritten || rule.access != .read
        else { return nil }
        return Refusal(line: rule.line, remedy: rule.remedy)
    }
}
