import System

/// A file of settings: its keys and values, with their lines for error messages.
struct SettingsFile {
    let path: String
    /// In the file's order; empty if the file has nothing but comments.
    let entries: [YAMLEntries.Entry]
    private let positions: [String: Int]

    /// Far more than all settings with their comments take.
    private static let largestInBytes = 1 << 20

    init(path: String) throws(SettingsError) {
        self.path = path
        let bytes: [UInt8]
        do {
            bytes = try BlockingIO.contents(ofFile: path, limit: Self.largestInBytes).bytes
        } catch {
            let advice = error.fileAdvice(otherwise: "check the path, and that this user may read it")
            throw .file(path, error.reason + advice)
        }
        guard String(validating: bytes, as: UTF8.self) != nil else {
            throw .file(path, "it is not UTF-8 text")
        }
        do {
            entries = try YAMLEntries(bytes).entries
        } catch {
            throw .file(path, "line \(error.line): \(error.reason)")
        }
        positions = Dictionary(uniqueKeysWithValues: entries.enumerated().map { ($1.key, $0) })
    }

    /// The entry of a key; nil if the file has none.
    subscript(key: String) -> YAMLEntries.Entry? {
        positions[key].map { entries[$0] }
    }

    /// The file and line of an entry, which begin an error message.
    func place(of entry: YAMLEntries.Entry) -> String {
        "\(path), line \(entry.line)"
    }
}

extension SettingsFile {
    /// Unknown keys, and values in the place of sections.
    var keyFaults: [SettingsError] {
        let known = Set(Setting.all.map(\.key) + FormerSetting.all.map(\.key))
        return entries.compactMap { entry in
            let members = Setting.all.map(\.key).filter { $0.hasPrefix(entry.key + ".") }
            if !members.isEmpty {
                return SettingsError(
                    place(of: entry),
                    """
                    \(entry.key) is a section and has no value of its own; write one of its settings below it, indented: \
                    \(Self.names(members, in: entry.key))
                    """)
            }
            return known.contains(entry.key) ? nil : unknown(entry)
        }
    }
}

extension SettingsFile {
    /// The advice about a key that no setting has: a similar key, or else the keys of its section.
    private func unknown(_ entry: YAMLEntries.Entry) -> SettingsError {
        let keys = Setting.all.map(\.key)
        let suggestion = Suggestion.nearest(to: entry.key, among: keys)
        if suggestion == nil, let section = entry.key.split(separator: ".").first.map(String.init) {
            let members = keys.filter { $0.hasPrefix(section + ".") }
            if !members.isEmpty {
                return SettingsError(
                    place(of: entry),
                    "\(entry.key) is no setting; the section \(section) has \(Self.names(members, in: section))")
            }
        }
        return .unknown(place(of: entry), entry.key, suggestion)
    }

    /// The keys of a section without its name.
    private static func names(_ members: [String], in section: String) -> String {
        members.map { String($0.dropFirst(section.count + 1)) }.sorted().joined(separator: ", ")
    }
}

/// Finds the name that a mistyped one was meant to be.
package enum Suggestion {
    /// The candidate with the fewest edits; nil if it takes more edits than a typing error does.
    package static func nearest(to text: String, among candidates: [String]) -> String? {
        let ranked = candidates.map { (candidate: $0, distance: distance(text.lowercased(), $0.lowercased())) }
        guard let best = ranked.min(by: { $0.distance < $1.distance }) else { return nil }
        return best.distance <= max(2, text.count / 4) ? best.candidate : nil
    }

    /// Levenshtein's distance.
    private static func distance(_ first: String, _ second: String) -> Int {
        let second = Array(second)
        var row = Array(0...second.count)
        for (line, character) in first.enumerated() {
            var diagonal = row[0]
            row[0] = line + 1
            for column in second.indices {
                let replaced = diagonal + (character == second[column] ? 0 : 1)
                diagonal = row[column + 1]
                row[column + 1] = min(replaced, diagonal + 1, row[column] + 1)
            }
        }
        return row[second.count]
    }
}

/// Faults in the settings: for each its place, the key, what was found and what is allowed.
package struct SettingsError: Error, Hashable, CustomStringConvertible {
    /// At least one; all can be corrected at once.
    package let each: [String]

    init(_ faults: [String]) { each = faults }

    /// - Parameters:
    ///   - source: A file and a line, or another place.
    ///   - fault: What is wrong there.
    init(_ source: String, _ fault: String) { each = ["\(source): \(fault)"] }

    /// The file cannot be used.
    static func file(_ path: String, _ reason: String) -> SettingsError {
        SettingsError(["the settings file \(path) cannot be read: \(reason)"])
    }

    /// A key that no setting has.
    static func unknown(_ source: String, _ key: String, _ suggestion: String?) -> SettingsError {
        let advice =
            suggestion.map { "did you mean \($0)?" } ?? "remove it, and token-cache check-config lists all settings"
        return SettingsError(source, "there is no setting \(key); \(advice)")
    }

    /// Values contradict each other although each is allowed.
    static func contradiction(_ text: String) -> SettingsError { SettingsError([text]) }

    package var description: String { each.joined(separator: "; and ") }
}
