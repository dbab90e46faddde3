extension SettingsFile {
    /// Unknown keys, values in the place of sections, and values that no setting can have.
    var keyFaults: [SettingsError] {
        let known = Dictionary(uniqueKeysWithValues: Setting.all.map { ($0.key, $0) })
        return entries.compactMap { entry in
            let members = Setting.all.map(\.key).filter { $0.hasPrefix(entry.key + ".") }
            if !members.isEmpty {
                return .refused(
                    source: place(of: entry), key: entry.key,
                    reason: """
                        is a section and has no value of its own; write one of its settings below it, indented: \
                        \(Self.names(members, in: entry.key))
                        """
                )
            }
            guard let setting = known[entry.key] else {
                return unknown(entry)
            }
            return entry.fault.map {
                .notAllowed(source: place(of: entry), key: entry.key, found: $0, allowed: setting.allowed)
            }
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
                return .refused(
                    source: place(of: entry), key: entry.key,
                    reason: "is no setting; the section \(section) has \(Self.names(members, in: section))")
            }
        }
        return .unknownKey(source: place(of: entry), key: entry.key, suggestion: suggestion)
    }

    /// The keys of a section without its name.
    private static func names(_ members: [String], in section: String) -> String {
        members.map { String($0.dropFirst(section.count + 1)) }.sorted().joined(separator: ", ")
    }
}

extension YAMLEntries.Entry {
    /// The values of the entry; a scalar is a list of one.
    var texts: [String] {
        switch value {
        case .text(let text): [text]
        case .list(let texts): texts
        case .emptySection, .unusable: []
        }
    }

    /// Describes a value that no setting can have; nil for all others.
    var fault: String? {
        switch value {
        case .text, .list: nil
        case .emptySection: "an empty section"
        case .unusable(let what): what
        }
    }
}
