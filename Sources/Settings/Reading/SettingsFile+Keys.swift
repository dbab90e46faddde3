extension SettingsFile {
    /// Refuses unknown keys, values in the place of sections, and values that no setting can have.
    func checkKeys() throws(SettingsError) {
        let known = Dictionary(uniqueKeysWithValues: Setting.all.map { ($0.key, $0) })
        for entry in entries {
            let members = Setting.all.map(\.key).filter { $0.hasPrefix(entry.key + ".") }
            if !members.isEmpty {
                throw .notAllowed(
                    source: place(of: entry), key: entry.key, found: "a value",
                    allowed: "a section with "
                        + members.map { String($0.dropFirst(entry.key.count + 1)) }.sorted().joined(separator: ", ")
                )
            }
            guard let setting = known[entry.key] else {
                throw .unknownKey(
                    source: place(of: entry), key: entry.key,
                    suggestion: Suggestion.nearest(to: entry.key, among: Setting.all.map(\.key))
                )
            }
            if let fault = entry.fault {
                throw .notAllowed(source: place(of: entry), key: entry.key, found: fault, allowed: setting.allowed)
            }
        }
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
    fileprivate var fault: String? {
        switch value {
        case .text, .list: nil
        case .emptySection: "an empty section"
        case .unusable(let what): what
        }
    }
}
