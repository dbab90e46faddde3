/// The keys of a YAML text with their values, flat: `body` in the section `limits` is `limits.body`.
///
/// Reads the part of YAML that settings need: one document of sections, lists of scalars, and scalars, each of which is its
/// text whatever it looks like. Anchors and aliases are not followed, so that the result is never larger than the text.
struct YAMLEntries {
    /// A key with its value.
    struct Entry: Hashable {
        let key: String
        /// The line of the key, from 1.
        let line: Int
        let value: Value
    }

    enum Value: Hashable {
        case text(String)
        case list([String])
        case emptySection
        /// A value that no setting can have; describes it, such as "an alias".
        case unusable(String)
    }

    /// The text cannot be read as keys and values.
    struct Fault: Error, Hashable {
        /// From 1.
        let line: Int
        let reason: String
    }

    /// In the order of the text.
    private(set) var entries: [Entry] = []
    /// The lines of all keys that were read, including those of sections.
    private var lines: [String: Int] = [:]

    /// How many sections and lists may be within one another.
    ///
    /// Settings need two levels. libyaml takes very long for thousands of them.
    private static let deepest = 8

    /// - Parameter bytes: UTF-8.
    init(_ bytes: [UInt8]) throws(Fault) {
        var events = YAMLEvents(bytes)
        guard try Self.next(&events) == .documentStart else { return }
        switch try Self.next(&events) {
        case .sectionStart: try readSection("", depth: 1, &events)
        // A document without anything but comments.
        case .scalar(""): break
        default: throw Fault(line: events.line, reason: "found no keys; write them as in log_level: info")
        }
        // The end of the document.
        _ = try Self.next(&events)
        guard try Self.next(&events) == .end else {
            throw Fault(line: events.line, reason: "a second document begins, and only one is read")
        }
    }

    private static func next(_ events: inout YAMLEvents) throws(Fault) -> YAMLEvents.Event {
        do throws(YAMLEvents.SyntaxError) {
            return try events.next()
        } catch {
            throw Fault(line: error.line, reason: error.reason)
        }
    }

    /// Reads the keys and values of a section, whose start has been read.
    private mutating func readSection(_ prefix: String, depth: Int, _ events: inout YAMLEvents) throws(Fault) {
        while true {
            let event = try Self.next(&events)
            if event == .sectionEnd { return }
            let line = events.line
            guard case .scalar(let name) = event, !events.isAnchored else {
                throw Fault(line: line, reason: "a key must be a word, without an anchor or an alias")
            }
            let key = prefix + name
            if let first = lines.updateValue(line, forKey: key) {
                throw Fault(line: line, reason: "\(key) is a duplicate of the one on line \(first)")
            }
            if let value = try readValue(key, depth: depth, &events) {
                entries.append(Entry(key: key, line: line, value: value))
            }
        }
    }

    /// Reads the value of a key; nil if it was a section, whose keys have become entries.
    private mutating func readValue(
        _ key: String, depth: Int, _ events: inout YAMLEvents
    ) throws(Fault) -> Value? {
        let event = try Self.next(&events)
        let isAnchored = events.isAnchored
        let value: Value?
        switch event {
        case .scalar(let text): value = .text(text)
        case .listStart: value = try Self.readList(depth: depth + 1, &events)
        case .sectionStart:
            guard depth < Self.deepest else {
                throw Fault(line: events.line, reason: "\(key) is a section too deep within others")
            }
            let count = entries.count
            try readSection(key + ".", depth: depth + 1, &events)
            value = entries.count == count ? .emptySection : nil
        default: value = .unusable("an alias")
        }
        return isAnchored ? .unusable("a value with an anchor") : value
    }

    /// Reads the values of a list, whose start has been read.
    private static func readList(depth: Int, _ events: inout YAMLEvents) throws(Fault) -> Value {
        var texts: [String] = []
        var unusable: Value?
        while true {
            let event = try next(&events)
            if events.isAnchored { unusable = .unusable("a list with an anchor in it") }
            switch event {
            case .listEnd: return unusable ?? .list(texts)
            case .scalar(let text): texts.append(text)
            case .alias: unusable = .unusable("a list with an alias in it")
            case .listStart:
                unusable = .unusable("a list with a list in it")
                try skip(depth: depth + 1, &events)
            default:
                unusable = .unusable("a list with a section in it")
                try skip(depth: depth + 1, &events)
            }
        }
    }

    /// Skips the rest of a list or section, whose start has been read.
    private static func skip(depth: Int, _ events: inout YAMLEvents) throws(Fault) {
        var depth = depth
        let outside = depth - 1
        while depth > outside {
            guard depth <= deepest else { throw Fault(line: events.line, reason: "a list too deep within others") }
            switch try next(&events) {
            case .listStart, .sectionStart: depth += 1
            case .listEnd, .sectionEnd: depth -= 1
            default: break
            }
        }
    }
}
