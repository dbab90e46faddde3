internal import System

/// The values of a systemd unit, from its file and its drop-ins (systemd.unit(5)).
struct UnitFile {
    /// The file that systemd reads first.
    let path: String
    /// By section and key, such as `Service.User`, in the order of their lines.
    private var values: [String: [String]] = [:]

    /// The folders in which systemd looks for units, the first ones first.
    static func folders(_ environment: [String: String]) -> [String] {
        let standard = [
            "/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system",
            "/lib/systemd/system",
        ]
        guard let path = environment["SYSTEMD_UNIT_PATH"], !path.isEmpty else { return standard }
        let own = path.split(separator: ":").map(String.init)
        // A colon at the end stands for the standard folders.
        return path.hasSuffix(":") ? own + standard : own
    }

    /// Reads a unit; nil if it is in none of the folders.
    init?(named name: String, in folders: [String]) {
        guard let path = folders.map({ "\($0)/\(name)" }).first(where: FileStatus.exists),
            let text = TextFile.contents(of: path)
        else { return nil }
        self.path = path
        read(text)
        var dropIns: [String: String] = [:]
        // A drop-in of an earlier folder replaces one of the same name in a later folder.
        for folder in folders.reversed() {
            for name in Folder.names(in: "\(folder)/\(name).d") ?? [] where name.hasSuffix(".conf") {
                dropIns[name] = "\(folder)/\(path.split(separator: "/").last ?? "").d/\(name)"
            }
        }
        for name in dropIns.keys.sorted() { read(TextFile.contents(of: dropIns[name] ?? "") ?? "") }
    }

    /// All values of a key.
    func all(_ key: String) -> [String] { values[key] ?? [] }

    /// The value of a key that has one.
    subscript(key: String) -> String? { values[key]?.last }

    func isOn(_ key: String) -> Bool { ["yes", "true", "on", "1"].contains(self[key]?.lowercased() ?? "") }

    private mutating func read(_ text: String) {
        var section = ""
        var joined = ""
        for line in text.split(separator: "\n", omittingEmptySubsequences: false) {
            if joined.isEmpty, line.first == "#" || line.first == ";" { continue }
            joined += line
            if joined.hasSuffix("\\") {
                joined = joined.dropLast() + " "
                continue
            }
            defer { joined = "" }
            if joined.hasPrefix("["), let end = joined.firstIndex(of: "]") {
                section = String(joined[joined.index(after: joined.startIndex)..<end])
            }
            let parts = joined.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            guard parts.count == 2 else { continue }
            let key = "\(section).\(Self.trimmed(parts[0]))"
            let value = Self.trimmed(parts[1])
            // An empty value removes those before it.
            if value.isEmpty { values[key] = nil } else { values[key, default: []].append(value) }
        }
    }

    private static func trimmed(_ text: Substring) -> String {
        var text = text.drop(while: \.isWhitespace)
        while text.last?.isWhitespace == true { text.removeLast() }
        return String(text)
    }

    /// The words of a command line, of which some may be in quotation marks.
    static func words(_ text: String) -> [String] {
        var words: [String] = []
        var word: String?
        var quotation: Character?
        for character in text {
            switch character {
            case quotation: quotation = nil
            case "\"" where quotation == nil, "'" where quotation == nil:
                quotation = character
                word = word ?? ""
            case _ where character.isWhitespace && quotation == nil:
                if let word { words.append(word) }
                word = nil
            default: word = (word ?? "") + String(character)
            }
        }
        return words + (word.map { [$0] } ?? [])
    }
}
