internal import System

/// Which paths a unit keeps from its service (systemd.exec(5), "Sandboxing"), as far as its file tells.
struct ServiceSandbox: Codable, Hashable {
    private var rules: [Rule] = []
    /// Whether the service sees another tree of folders, of which nothing can be told.
    private var isUnknown = false

    private struct Rule: Codable, Hashable {
        let path: String
        let access: Access
        /// The line of the unit, such as `ProtectHome=yes`.
        let reason: String
    }

    private enum Access: Codable, Hashable { case none, read, write }

    /// - Parameters:
    ///   - unit: The unit of the service.
    ///   - folders: Those that systemd makes for the service.
    init(_ unit: UnitFile, folders: [String]) {
        isUnknown = ["RootDirectory", "RootImage"].contains { unit["Service.\($0)"] != nil }
        addProtections(unit)
        for folder in folders { rules.append(Rule(path: folder, access: .write, reason: "")) }
        let lists: [(key: String, access: Access)] = [
            ("InaccessiblePaths", .none), ("TemporaryFileSystem", .none), ("ReadOnlyPaths", .read),
            ("BindReadOnlyPaths", .read), ("ReadWritePaths", .write), ("BindPaths", .write),
        ]
        for (key, access) in lists {
            for word in unit.all("Service.\(key)").flatMap(UnitFile.words) {
                // What a specifier such as %S stands for is not known here.
                if word.contains("%") { isUnknown = true }
                rules.append(Rule(path: Self.path(word, of: key), access: access, reason: "\(key)=\(word)"))
            }
        }
    }

    private mutating func addProtections(_ unit: UnitFile) {
        // Implied, whatever else the unit says of them (systemd.exec(5), DynamicUser=).
        let isDynamic = unit.isOn("Service.DynamicUser")
        func add(_ key: String, _ paths: [String], _ access: Access) {
            let reason = unit["Service.\(key)"].map { "\(key)=\($0)" } ?? "DynamicUser=yes"
            rules += paths.map { Rule(path: $0, access: access, reason: reason) }
        }
        let system = isDynamic ? "strict" : unit["Service.ProtectSystem"]?.lowercased()
        if system == "strict" {
            add("ProtectSystem", ["/"], .read)
            for path in ["/dev", "/proc", "/sys"] { rules.append(Rule(path: path, access: .write, reason: "")) }
        } else if system == "full" || unit.isOn("Service.ProtectSystem") {
            add("ProtectSystem", ["/usr", "/boot", "/efi"] + (system == "full" ? ["/etc"] : []), .read)
        }
        let homes = ["/home", "/root", "/run/user"]
        if unit.isOn("Service.ProtectHome") || unit["Service.ProtectHome"]?.lowercased() == "tmpfs" {
            add("ProtectHome", homes, .none)
        } else if isDynamic || unit["Service.ProtectHome"]?.lowercased() == "read-only" {
            add("ProtectHome", homes, .read)
        }
        if isDynamic || unit.isOn("Service.PrivateTmp") { add("PrivateTmp", ["/tmp", "/var/tmp"], .none) }
    }

    /// The path that a word of a list is about: after signs that change how it is taken, or where a mount goes.
    private static func path(_ word: String, of key: String) -> String {
        let parts = word.drop { "-+".contains($0) }.split(separator: ":").map(String.init)
        return (key.hasPrefix("Bind") && parts.count > 1 ? parts[1] : parts.first) ?? ""
    }

    /// The line of the unit that keeps the service from a path; nil if none does.
    ///
    /// - Parameters:
    ///   - path: Absolute.
    ///   - isWritten: Whether the service writes there.
    func refusal(of path: String, isWritten: Bool) -> String? {
        guard !isUnknown, path.hasPrefix("/") else { return nil }
        let applying = rules.filter { $0.path == "/" || path == $0.path || path.hasPrefix($0.path + "/") }
        // The rule of the innermost folder counts, of several for one folder the one that allows more.
        func rank(_ rule: Rule) -> (Int, Int) {
            (rule.path.utf8.count, rule.access == .none ? 0 : rule.access == .read ? 1 : 2)
        }
        guard let rule = applying.max(by: { rank($0) < rank($1) }) else { return nil }
        return rule.access == .none || isWritten && rule.access == .read ? rule.reason : nil
    }
}
