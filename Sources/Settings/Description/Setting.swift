/// The description of one setting.
///
/// Only the list `all` names the settings. From it follow the keys of the file, the names of the variables, all checks, what a
/// reload changes, the sample file, the table in config/README.md and the manual page's section.
package struct Setting: Sendable {
    /// The key in the file, with dots between the names of sections: `limits.body`.
    package let key: String
    package let effect: Effect
    /// The option of the commands that have one: `--listen`.
    package let option: String?
    /// Whether it has any number of values rather than one.
    package let isList: Bool
    /// What is allowed, to be read after "allowed is".
    package let allowed: String
    /// What the setting is for.
    ///
    /// All documentation has the first paragraph, only the sample file has the others. A paragraph that begins with a blank
    /// keeps its lines. They are made only when documentation is written, because a start needs none of them.
    package var paragraphs: [String] {
        text.split(separator: "\n\n").map { paragraph in
            paragraph.hasPrefix(" ") ? String(paragraph) : paragraph.split(separator: "\n").joined(separator: " ")
        }
    }
    private let text: String

    /// Sets the values; returns false if they are not allowed.
    let apply: @Sendable (_ values: [String], _ settings: inout Settings) -> Bool
    /// Copies the value from other settings.
    let copy: @Sendable (_ other: Settings, _ settings: inout Settings) -> Void
    /// The values as texts; exactly one unless it is a list.
    package let values: @Sendable (Settings) -> [String]
    /// The value as the file would have it on one line.
    package let show: @Sendable (Settings) -> String
    /// See `SettingFormat.fault`.
    let fault: (@Sendable (_ text: String) -> String)?

    /// When a change of a setting takes effect in a running server.
    package enum Effect: Sendable {
        /// At a reload; for connections that are open, at their next request.
        case atReload
        /// At a reload if the server has listeners with TLS, otherwise at the next start.
        case atReloadOfCertificates
        case atStart
    }

    /// - Parameters:
    ///   - place: Where `Settings` has the value.
    ///   - text: What the setting is for, with empty lines between paragraphs.
    init<Value: Sendable>(
        _ key: String, _ place: any WritableKeyPath<Settings, Value> & Sendable, _ format: SettingFormat<Value>,
        takesEffect effect: Effect = .atReload, option: String? = nil, _ text: String
    ) {
        self.key = key
        self.effect = effect
        self.option = option
        isList = format.isList
        allowed = format.allowed
        fault = format.fault
        self.text = text
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
    package var environmentName: String { Self.environmentName(key) }

    static func environmentName(_ key: String) -> String {
        environmentPrefix + String(key.uppercased().map { $0 == "." ? "_" : $0 })
    }

    static let environmentPrefix = "TOKEN_CACHE_"

    /// The default, as `show` writes it.
    package var `default`: String { show(Settings()) }

    /// The default for help texts, without YAML's quotes and brackets.
    package var plainDefault: String { values(Settings()).joined(separator: ", ") }

    /// A string as YAML writes it, in quotes if it would mean something else without them.
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
    /// All settings with their values, one per line, as a settings file has them.
    package var listing: String {
        Setting.all.map { "\($0.key): \($0.show(self))" }.joined(separator: "\n")
    }
}

extension Setting {
    /// Every setting, in the order of the sample file.
    package static let all: [Setting] =
        [listen] + administration + storage + serving + access + refresh + security + logging + limits + timeouts
}
