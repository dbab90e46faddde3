/// A fault in the settings: its place, the key, what was found and what is allowed.
package enum SettingsError: Error, Hashable, CustomStringConvertible {
    case unreadableFile(path: String, reason: String)
    /// The file is not YAML or has no keys at its top level; lines count from 1.
    case malformedFile(path: String, line: Int, reason: String)
    case unknownKey(source: String, key: String, suggestion: String?)
    case notAllowed(source: String, key: String, found: String, allowed: String)
    /// Like `notAllowed`, for a value of which it can be told what is missing.
    case incomplete(source: String, key: String, found: String, advice: String)
    /// Like `notAllowed`, without what was found, which may contain a secret.
    case refused(source: String, key: String, reason: String)
    /// Two values contradict each other although each is allowed.
    case contradiction(String)
    /// At least two faults, all of which can be corrected at once.
    case several([SettingsError])

    /// The faults one by one.
    package var each: [SettingsError] { if case .several(let faults) = self { faults } else { [self] } }

    package var description: String {
        switch self {
        case .unreadableFile(let path, let reason):
            "the settings file \(path) cannot be read: \(reason)"
        case .malformedFile(let path, let line, let reason):
            "the settings file \(path) is not valid YAML with keys at its top level: line \(line): \(reason)"
        case .unknownKey(let source, let key, let suggestion):
            "\(source): there is no setting \(key)"
                + (suggestion.map { "; did you mean \($0)?" } ?? "; token-cache check-config without it shows them all")
        case .notAllowed(let source, let key, let found, let allowed):
            "\(source): \(key) is \(found); allowed is \(allowed)"
        case .incomplete(let source, let key, let found, let advice):
            "\(source): \(key) is \(found); \(advice)"
        case .refused(let source, let key, let reason):
            "\(source): \(key) \(reason)"
        case .contradiction(let text):
            text
        case .several(let faults):
            faults.map(\.description).joined(separator: "; and ")
        }
    }
}
