/// One setting: all that the program and its documentation know of it.
///
/// The list `all` is the only place that names the settings. It makes the keys of the file and the names of the environment,
/// the checks of both, what a reload changes, the sample file, the table in config/README.md and the manual page's section.
package struct Setting: Sendable {
    /// As in the file, sections separated by dots: `limits.body`.
    package let key: String
    package let effect: Effect
    /// On the command line, for commands that take it there: `--listen`.
    package let option: String?
    /// Whether it takes several values.
    package let isList: Bool
    /// What is allowed, to be read after "allowed is".
    package let allowed: String
    /// What it is for, in paragraphs.
    ///
    /// The first one is for all documentation, the others are for the sample file alone. One that begins with a blank is to
    /// be shown as it is, line by line.
    package let paragraphs: [String]

    /// Puts the values into the settings; false when they are not allowed.
    let apply: @Sendable (_ values: [String], _ settings: inout Settings) -> Bool
    /// Takes the value over from other settings.
    let copy: @Sendable (_ other: Settings, _ settings: inout Settings) -> Void
    /// The values in effect, one unless it is a list.
    package let values: @Sendable (Settings) -> [String]
    /// The value in effect, as the file would have it on one line.
    package let show: @Sendable (Settings) -> String

    /// When a change of a setting takes effect in a running server.
    package enum Effect: Sendable {
        /// When the settings are reloaded; for connections that are open, at their next request.
        case atReload
        /// As `atReload` if the server has listeners with TLS, otherwise at the next start.
        case atReloadOfCertificates
        case atStart
    }

    /// - Parameters:
    ///   - place: Where the value is in the settings.
    ///   - text: What it is for; paragraphs have empty lines between them.
    init<Value: Sendable>(
        _ key: String, _ place: any WritableKeyPath<Settings, Value> & Sendable, _ format: SettingFormat<Value>,
        takesEffect effect: Effect = .atReload, option: String? = nil, _ text: String
    ) {
        self.key = key
        self.effect = effect
        self.option = option
        isList = format.isList
        allowed = format.allowed
        paragraphs = Self.paragraphs(text)
        apply = { values, settings in
            guard let value = format.read(values) else { return false }
            settings[keyPath: place] = value
            return true
        }
        copy = { other, settings in settings[keyPath: place] = other[keyPath: place] }
        values = { format.texts($0[keyPath: place]) }
        show = { settings in
            let texts = format.texts(settings[keyPath: place]).map(Self.quoted)
            if !format.isList { return texts[0] }
            return texts.isEmpty ? format.empty : "[" + texts.joined(separator: ", ") + "]"
        }
    }

    /// The environment variable of the setting: `limits.body` is `TOKEN_CACHE_LIMITS_BODY`.
    package var environmentName: String {
        Self.environmentPrefix + key.uppercased().map { $0 == "." ? "_" : String($0) }.joined()
    }

    static let environmentPrefix = "TOKEN_CACHE_"

    /// The value without any settings, as `show` has it.
    package var `default`: String { show(Settings()) }

    private static func paragraphs(_ text: String) -> [String] {
        text.split(separator: "\n\n").map { paragraph in
            paragraph.hasPrefix(" ") ? String(paragraph) : paragraph.split(separator: "\n").joined(separator: " ")
        }
    }

    /// A string as YAML reads it, in quotes where it would mean something else without.
    package static func quoted(_ text: String) -> String {
        let isPlain =
            text.first.map { $0.isLetter || $0.isNumber || $0 == "/" || $0 == "." } ?? false
            && text.allSatisfy { $0.isASCII && ($0.isLetter || $0.isNumber || " ._/%:-".contains($0)) }
            && !text.contains(": ") && !text.hasSuffix(":") && !text.hasSuffix(" ")
        if isPlain { return text }
        return "\"" + text.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"") + "\""
    }
}

extension Settings {
    /// All settings in effect, one a line, as the configuration file would have them.
    package var listing: String {
        Setting.all.map { "\($0.key): \($0.show(self))" }.joined(separator: "\n")
    }
}
