/// The text form of a kind of value: what is allowed, how it is read and how it is shown.
struct SettingFormat<Value: Sendable>: Sendable {
    /// Whether the value has any number of texts rather than one.
    var isList = false
    /// What is allowed, to be read after "allowed is".
    let allowed: String
    /// The text of an empty list.
    var empty = "[]"
    /// Reads a value; nil if the texts are not allowed.
    ///
    /// Exactly one text, unless it is a list.
    let read: @Sendable (_ texts: [String]) -> Value?
    /// Writes a value as texts that `read` accepts.
    let texts: @Sendable (Value) -> [String]
    /// Says what is wrong with a text that is not allowed, to be read after the setting's name; nil if the error shows the text.
    ///
    /// For texts that may contain a secret: the answer repeats nothing of the text.
    var fault: (@Sendable (_ text: String) -> String)?
}

extension SettingFormat {
    /// A value of one text.
    static func single(
        _ allowed: String, _ read: @escaping @Sendable (String) -> Value?, _ text: @escaping @Sendable (Value) -> String
    ) -> SettingFormat {
        SettingFormat(allowed: allowed, read: { read($0[0]) }, texts: { [text($0)] })
    }

    /// A value in a range.
    private static func within(
        _ range: ClosedRange<Value>, _ allowed: String, _ read: @escaping @Sendable (String) -> Value?,
        _ text: @escaping @Sendable (Value) -> String
    ) -> SettingFormat where Value: Comparable {
        single(allowed, { read($0).flatMap { range.contains($0) ? $0 : nil } }, text)
    }

    /// A value, or one of some words for none; the first word is the one that is shown.
    static func orWord<Wrapped>(
        _ words: [String], _ allowed: String, _ read: @escaping @Sendable (String) -> Wrapped?,
        _ text: @escaping @Sendable (Wrapped) -> String
    ) -> SettingFormat where Value == Wrapped? {
        single(
            "\(words[0]), or \(allowed)",
            { words.contains($0) ? .some(nil) : read($0).map(Optional.some) }, { $0.map(text) ?? words[0] }
        )
    }

    /// A value, or off for none.
    static func orOff<Wrapped>(
        _ allowed: String, _ read: @escaping @Sendable (String) -> Wrapped?,
        _ text: @escaping @Sendable (Wrapped) -> String
    ) -> SettingFormat where Value == Wrapped? {
        // Programs that write YAML turn off into false.
        orWord(["off", "false"], allowed, read, text)
    }

    /// At least one value.
    static func list<Element>(
        _ allowed: String, _ read: @escaping @Sendable (String) -> Element?,
        _ text: @escaping @Sendable (Element) -> String
    ) -> SettingFormat where Value == [Element] {
        SettingFormat(
            isList: true, allowed: allowed,
            read: { texts in
                let elements = texts.compactMap(read)
                return texts.isEmpty || elements.count < texts.count ? nil : elements
            },
            texts: { $0.map(text) }
        )
    }

    /// Any number of values; each of the words, if alone, stands for none.
    static func listOrNone<Element>(
        _ words: [String], _ allowed: String, showing empty: String = "[]",
        _ read: @escaping @Sendable (String) -> Element?, _ text: @escaping @Sendable (Element) -> String
    ) -> SettingFormat where Value == [Element] {
        SettingFormat(
            isList: true, allowed: allowed, empty: empty,
            read: { texts in
                if texts.count == 1 && words.contains(texts[0]) { return [] }
                let elements = texts.compactMap(read)
                return elements.count < texts.count ? nil : elements
            },
            texts: { $0.map(text) }
        )
    }
}

extension SettingFormat where Value == Int {
    static func number(_ range: ClosedRange<Int>) -> SettingFormat {
        within(range, "a number from \(range.lowerBound) to \(range.upperBound)", Quantities.number, { "\($0)" })
    }

    static func bytes(_ range: ClosedRange<Int>) -> SettingFormat {
        let (least, most) = (Quantities.text(bytes: range.lowerBound), Quantities.text(bytes: range.upperBound))
        return within(
            range, "a size from \(least) to \(most), in bytes or with KiB, MiB or GiB, such as 64 KiB",
            Quantities.bytes, Quantities.text(bytes:)
        )
    }
}

extension SettingFormat where Value == Duration {
    static func duration(_ range: ClosedRange<Duration>) -> SettingFormat {
        let (least, most) = (Quantities.text(range.lowerBound), Quantities.text(range.upperBound))
        return within(
            range, "a time from \(least) to \(most), in seconds or with ms, s, m, h or d, such as 500ms or 2m",
            Quantities.duration, Quantities.text(_:)
        )
    }
}

extension SettingFormat where Value == Duration? {
    /// Off, or a time with its unit.
    ///
    /// Elsewhere a number without a unit is in seconds; here a forgotten `d` would delete nearly everything at once.
    static func retention(atLeast least: Duration, example: String) -> SettingFormat {
        orOff(
            "a time of at least \(Quantities.text(least)) with its unit, such as \(example) for days",
            { text in
                guard Quantities.number(text) == nil, let time = Quantities.duration(text) else { return nil }
                return time >= least ? time : nil
            }, Quantities.text(_:)
        )
    }
}

extension SettingFormat where Value == Bool {
    static var onOff: SettingFormat {
        // Programs that write YAML turn on and off into true and false.
        let values = ["on": true, "off": false, "true": true, "false": false]
        return single("on, off", { values[$0] }, { $0 ? "on" : "off" })
    }
}

extension SettingFormat where Value: RawRepresentable<String> & CaseIterable {
    /// One of the type's cases.
    static var choice: SettingFormat {
        // As above: `off` is one of some types' cases.
        single(
            Value.allCases.map(\.rawValue).joined(separator: ", "), { Value(rawValue: $0 == "false" ? "off" : $0) },
            \.rawValue)
    }
}

extension SettingFormat where Value == Settings.AccessLog {
    /// A format, which a blank and the path of a file may follow.
    static var accessLog: SettingFormat {
        let formats = SettingFormat<AccessLogFormat>.choice
        return single(
            "\(formats.allowed), combined PATH, json PATH",
            { text in
                let word = text.prefix { $0 != " " }
                let file = text.dropFirst(word.count).drop { $0 == " " }
                guard let format = formats.read([String(word)]), file.isEmpty || format != .off else { return nil }
                return Settings.AccessLog(format: format, file: String(file))
            }, { $0.file.isEmpty ? $0.format.rawValue : "\($0.format.rawValue) \($0.file)" })
    }
}

extension SettingFormat where Value == String {
    /// Any text that fulfils a condition.
    static func text(
        _ allowed: String, where isAllowed: @escaping @Sendable (String) -> Bool = { _ in true }
    ) -> SettingFormat {
        single(allowed, { isAllowed($0) ? $0 : nil }, { $0 })
    }

    static let file = text("the path of a file, or empty")

    /// Empty, or the URL of a database.
    static var storeURL: SettingFormat {
        let fault: @Sendable (String) -> StoreURL.Fault? = { text in
            do throws(StoreURL.Fault) {
                if !text.isEmpty { _ = try StoreURL(text) }
                return nil
            } catch {
                return error
            }
        }
        var format = text("empty, or a URL such as \(StoreURL.example)", where: { fault($0) == nil })
        format.fault = { fault($0)?.description ?? "" }
        return format
    }
}

extension SettingFormat where Value == [String] {
    /// Any number of texts, none of them empty.
    static func texts(_ allowed: String) -> SettingFormat {
        listOrNone([""], "\(allowed), or an empty list", { $0.isEmpty ? nil : $0 }, { $0 })
    }
}
