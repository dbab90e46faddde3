import CYAML
import System

/// The keys of a YAML text with their values, flat: `body` in the section `limits` is `limits.body`.
///
/// Reads the part of YAML that settings need: one document of sections, lists of scalars, and scalars, each of which is its
/// text whatever it looks like; but null, which programs write for what is not set, is empty. Anchors and aliases are not followed, so that the result is never larger than the text.
struct YAMLEntries {
    /// A key with its values.
    struct Entry: Hashable {
        let key: String
        /// The line of the key, from 1.
        let line: Int
        /// One for a scalar.
        let values: [String]
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

    /// How many sections may be within one another.
    ///
    /// Settings need two levels. libyaml takes very long for thousands of them.
    private static let deepest = 8

    /// - Parameter bytes: UTF-8.
    init(_ bytes: [UInt8]) throws(Fault) {
        var events = YAMLEvents(Array(bytes.withoutByteOrderMark))
        guard try Self.next(&events) == .documentStart else { return }
        switch try Self.next(&events) {
        case .sectionStart: try readSection("", depth: 1, &events)
        // A document of comments alone.
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
        do {
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
            let value = try Self.next(&events)
            guard !events.isAnchored else { throw Self.unusable(key, "an anchor", events.line) }
            switch value {
            case .scalar(let text): entries.append(Entry(key: key, line: line, values: [text]))
            case .listStart: entries.append(Entry(key: key, line: line, values: try Self.readList(key, &events)))
            case .sectionStart:
                guard depth < Self.deepest else {
                    throw Fault(line: events.line, reason: "\(key) is a section too deep within others")
                }
                let count = entries.count
                try readSection(key + ".", depth: depth + 1, &events)
                guard entries.count > count else { throw Fault(line: line, reason: "\(key) is an empty section") }
            default: throw Self.unusable(key, "an alias", events.line)
            }
        }
    }

    /// Reads the values of a list, whose start has been read.
    private static func readList(_ key: String, _ events: inout YAMLEvents) throws(Fault) -> [String] {
        var texts: [String] = []
        while true {
            let event = try next(&events)
            guard !events.isAnchored else { throw unusable(key, "an anchor", events.line) }
            switch event {
            case .listEnd: return texts
            case .scalar(let text): texts.append(text)
            case .alias: throw unusable(key, "an alias", events.line)
            default: throw unusable(key, "a list or a section within a list", events.line)
            }
        }
    }

    private static func unusable(_ key: String, _ what: String, _ line: Int) -> Fault {
        Fault(line: line, reason: "\(key) has \(what), which no setting takes; write plain values")
    }
}

/// Reads YAML text event by event, through libyaml.
///
/// The text must be UTF-8. One thread at a time.
@safe struct YAMLEvents: ~Copyable {
    /// A part of the text.
    enum Event: Equatable {
        case sectionStart
        case sectionEnd
        case listStart
        case listEnd
        case scalar(String)
        /// A reference to an anchored value, such as `*name`.
        case alias
        case documentStart
        case documentEnd
        case end
    }

    /// The text is not YAML.
    struct SyntaxError: Error {
        /// From 1.
        let line: Int
        /// The words of libyaml.
        let reason: String
    }

    /// The line of the last event, from 1.
    private(set) var line = 1
    /// Whether the value that begins with the last event has an anchor, such as `&name`.
    private(set) var isAnchored = false

    // libyaml keeps pointers into both, so they must not move.
    private let parser: UnsafeMutablePointer<yaml_parser_t>
    private let text: UnsafeMutableBufferPointer<UInt8>

    init(_ bytes: [UInt8]) {
        unsafe text = .allocate(capacity: bytes.count)
        _ = unsafe text.initialize(from: bytes)
        unsafe parser = .allocate(capacity: 1)
        let isReady = unsafe yaml_parser_initialize(parser)
        // It fails only if it cannot allocate its buffers.
        precondition(isReady == 1, "out of memory")
        // libyaml would guess UTF-16 otherwise.
        unsafe yaml_parser_set_encoding(parser, YAML_UTF8_ENCODING)
        unsafe yaml_parser_set_input_string(parser, text.baseAddress, text.count)
    }

    deinit {
        unsafe yaml_parser_delete(parser)
        unsafe parser.deallocate()
        unsafe text.deallocate()
    }

    /// The next event; `end` is the last one.
    mutating func next() throws(SyntaxError) -> Event {
        while true {
            var event = unsafe yaml_event_t()
            guard unsafe yaml_parser_parse(parser, &event) == 1 else { throw syntaxError }
            defer { unsafe yaml_event_delete(&event) }
            line = unsafe Int(event.start_mark.line) + 1
            isAnchored = false
            switch unsafe event.type {
            case YAML_SCALAR_EVENT:
                let scalar = unsafe event.data.scalar
                isAnchored = unsafe scalar.anchor != nil
                let bytes = unsafe UnsafeBufferPointer(start: scalar.value, count: scalar.length)
                let (text, style) = unsafe (String(decoding: bytes, as: UTF8.self), scalar.style)
                return .scalar(style == YAML_PLAIN_SCALAR_STYLE && Self.nulls.contains(text) ? "" : text)
            case YAML_MAPPING_START_EVENT:
                isAnchored = unsafe event.data.mapping_start.anchor != nil
                return .sectionStart
            case YAML_SEQUENCE_START_EVENT:
                isAnchored = unsafe event.data.sequence_start.anchor != nil
                return .listStart
            case YAML_MAPPING_END_EVENT: return .sectionEnd
            case YAML_SEQUENCE_END_EVENT: return .listEnd
            case YAML_ALIAS_EVENT: return .alias
            case YAML_DOCUMENT_START_EVENT: return .documentStart
            case YAML_DOCUMENT_END_EVENT: return .documentEnd
            case YAML_STREAM_END_EVENT: return .end
            default: continue
            }
        }
    }

    /// YAML 1.2.2, section 10.3.2.
    private static let nulls = ["~", "null", "Null", "NULL"]

    /// Why libyaml has stopped.
    private var syntaxError: SyntaxError {
        let state = unsafe parser.pointee
        let problem = Self.plain(unsafe state.problem.map { unsafe String(cString: $0) } ?? "out of memory")
        // An error about a single byte has an offset instead of a mark.
        if unsafe state.error == YAML_READER_ERROR {
            return unsafe SyntaxError(line: lineOfByte(state.problem_offset), reason: problem)
        }
        // If something is missing at the end, the mark is on the line after the last one.
        let line = unsafe min(Int(state.problem_mark.line) + 1, lineOfByte(text.count - 1))
        // libyaml says of a tab only that it "cannot start any token".
        if isIndentedWithTab(line) {
            return SyntaxError(
                line: line, reason: "the line begins with a tab; indent it with spaces, as YAML takes no tabs there")
        }
        guard let context = unsafe state.context.map({ unsafe String(cString: $0) }) else {
            return SyntaxError(line: line, reason: problem)
        }
        let start = unsafe Int(state.context_mark.line) + 1
        return SyntaxError(
            line: line, reason: "\(problem), \(context)\(start >= line ? "" : " that begins on line \(start)")"
        )
    }

    /// A clearer text for libyaml's most common errors.
    private static func plain(_ problem: String) -> String {
        switch problem {
        case "mapping values are not allowed in this context":
            "a key has a value already; put a value with a colon in quotation marks, and check the indentation"
        case "found unexpected end of stream": "the closing quotation mark is missing"
        case "did not find expected key": "this line is indented differently from those that it belongs to"
        case "did not find expected ',' or ']'": "a comma or the closing bracket ] is missing"
        case "did not find expected ',' or '}'": "a comma or the closing brace } is missing"
        case "found character that cannot start any token":
            "no value begins like this; put one that begins with @, `, % or a tab in quotation marks"
        default: problem
        }
    }

    /// - Parameter line: From 1.
    private func isIndentedWithTab(_ line: Int) -> Bool {
        let lines = unsafe text.split(separator: UInt8(ascii: "\n"), maxSplits: line, omittingEmptySubsequences: false)
        guard unsafe lines.indices.contains(line - 1) else { return false }
        let blanks = unsafe lines[line - 1].prefix { $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\t") }
        return unsafe blanks.contains(UInt8(ascii: "\t"))
    }

    /// From 1.
    private func lineOfByte(_ offset: Int) -> Int {
        unsafe 1 + text.prefix(max(offset, 0)).count { $0 == UInt8(ascii: "\n") }
    }
}
