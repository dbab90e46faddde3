import Foundation
import JSON
import TokenPHPFiles
import TokenService

extension FuzzTarget {
    /// What reads JSON: the cursor, and the files of token.php.
    static let json = FuzzTarget(
        "json",
        words: [
            "{", "}", "[", "]", ",", ":", "\"", "\\", "\\u", "\\ud83d\\ude00", "\\ud83d", "\\udc00", "\\u0000", "\\/",
            "true", "false", "null", "0", "-", "-0", "01", "1.5", ".", "e+1", "E", " ", "\t\r\n", "\0", "\u{1f}",
            "{\"a\":",
            "{\"token_info\":\"a\"}", "\"token_info\"", "[[[[[[[[[[[[[[[[", "]]]]]]]]]]]]]]]]", "{\"a\":{\"a\":{\"a\":",
            "}}}",
        ]
    ) { input in
        try scan(input)
        try readFile(input)
    }

    /// The cursor reads a value if the grammar allows it.
    private static func scan(_ input: [UInt8]) throws {
        // The cursor does not skip white space before a value.
        let text = Array(input.drop { [0x20, 0x09, 0x0a, 0x0d].contains($0) })
        var cursor = JSONCursor(position: 0, end: text.count)
        var isRead = false
        do throws(JSONCursor.Malformed) {
            try cursor.skipValue(text.span, depth: 1)
            cursor.skipSpace(text.span)
            isRead = cursor.isAtEnd
        } catch {}
        let model = JSONModel.value(of: text.text, deepest: 63)
        try compare(isRead, model != nil, "whether it is JSON")
        guard case .string(let expected)? = model else { return }
        cursor = JSONCursor(position: 0, end: text.count)
        let string = try cursor.string(text.span)
        try compare(string.text.string, expected.string, "the string")
    }

    /// A file of token.php gives what PHP's `json_decode` gives, and what is written is read again.
    private static func readFile(_ input: [UInt8]) throws {
        let isSpace = { (byte: UInt8) in [0x20, 0x09, 0x0a, 0x0d].contains(byte) }
        let json = input.drop(while: isSpace).reversed().drop(while: isSpace).reversed()
        let isJSON = json.first == UInt8(ascii: "\"") || json.first == UInt8(ascii: "{")
        var expected: Text? = isJSON ? nil : input.text
        switch JSONModel.value(of: input.text) {
        case .string(let text)?: expected = text
        case .object(let members)?:
            if let member = members.last(where: { $0.name.string == "token_info" }) {
                if case .string(let text) = member.value { expected = text }
            } else {
                expected = Array(json).text
            }
        default: break
        }
        try compare((try? TokenPHPFile.tokenInfo(in: input))?.text.string, expected?.string, "the token info of a file")
        guard String(validating: input, as: UTF8.self) != nil else { return }
        let content = TokenPHPFile.content(of: input)
        try require((try? TokenPHPFile.tokenInfo(in: content)) == input, "a file is read otherwise than written")
        let decoded = try JSONSerialization.jsonObject(with: Data(content), options: .fragmentsAllowed)
        try require((decoded as? String).map { Array($0.utf8) } == input, "a file means something else to others")
    }
}

/// Reads JSON (RFC 8259) as the grammar has it, into a tree.
indirect enum JSONModel {
    case object([Member])
    case array([JSONModel])
    /// With the bytes of its UTF-8.
    case string(Text)
    case number(Text)
    case word

    struct Member {
        let name: Text
        let value: JSONModel
        /// The value as it stands there.
        let text: Text
    }

    /// Not JSON, or nested more deeply than the program reads.
    private struct Malformed: Error {}

    /// The value that is the whole text, perhaps between white space; nil if the text is none.
    static func value(of text: Text, deepest: Int = 64) -> JSONModel? {
        var rest = text
        guard let value = try? read(&rest, deepest) else { return nil }
        skipSpace(&rest)
        return rest.isEmpty ? value : nil
    }

    /// - Parameter depth: How many levels there may be, this one included.
    private static func read(_ rest: inout Text, _ depth: Int) throws -> JSONModel {
        guard depth > 0 else { throw Malformed() }
        skipSpace(&rest)
        switch rest.first {
        case "{": return .object(try list(&rest, until: "}") { rest in try member(&rest, depth - 1) })
        case "[": return .array(try list(&rest, until: "]") { rest in try read(&rest, depth - 1) })
        case "\"": return .string(try string(&rest))
        default: break
        }
        for word in ["true", "false", "null"] where rest.hasPrefix(word) {
            rest = rest.dropFirst(word.count)
            return .word
        }
        return .number(try number(&rest))
    }

    private static func list<Element>(
        _ rest: inout Text, until end: Unicode.Scalar, _ element: (inout Text) throws -> Element
    ) throws -> [Element] {
        var elements: [Element] = []
        rest.removeFirst()
        skipSpace(&rest)
        if rest.first == end {
            rest.removeFirst()
            return []
        }
        while true {
            elements.append(try element(&rest))
            skipSpace(&rest)
            switch rest.popFirst() {
            case end: return elements
            case ",": break
            default: throw Malformed()
            }
        }
    }

    private static func member(_ rest: inout Text, _ depth: Int) throws -> Member {
        skipSpace(&rest)
        let name = try string(&rest)
        skipSpace(&rest)
        guard rest.popFirst() == ":" else { throw Malformed() }
        skipSpace(&rest)
        let start = rest
        let value = try read(&rest, depth)
        return Member(name: name, value: value, text: start[..<rest.startIndex])
    }

    private static func skipSpace(_ rest: inout Text) {
        rest = rest.drop { " \t\n\r".unicodeScalars.contains($0) }
    }

    private static func number(_ rest: inout Text) throws -> Text {
        let number = rest.prefix { $0.isDigit || "+-.eE".unicodeScalars.contains($0) }
        // The longest beginning that is a number, as what follows it may be refused for itself.
        for end in (number.startIndex...number.endIndex).reversed() where isNumber(number[..<end]) {
            rest = rest[end...]
            return number[..<end]
        }
        throw Malformed()
    }

    private static func isNumber(_ text: Text) -> Bool {
        let exponent = text.split(maxSplits: 1, omittingEmptySubsequences: false) { $0 == "e" || $0 == "E" }
        let fraction = exponent[0].split(separator: ".", maxSplits: 1, omittingEmptySubsequences: false)
        let whole = fraction[0].first == "-" ? fraction[0].dropFirst() : fraction[0]
        guard whole.isDigits, whole.count == 1 || whole.first != "0" else { return false }
        if fraction.count == 2, !fraction[1].isDigits { return false }
        guard exponent.count == 2 else { return true }
        let hasSign = exponent[1].first == "+" || exponent[1].first == "-"
        return (hasSign ? exponent[1].dropFirst() : exponent[1]).isDigits
    }

    private static func string(_ rest: inout Text) throws -> Text {
        guard rest.popFirst() == "\"" else { throw Malformed() }
        var text: Text = []
        while let next = rest.popFirst(), next.value >= 0x20 {
            if next == "\"" { return text }
            text += next == "\\" ? try escaped(&rest) : [next]
        }
        throw Malformed()
    }

    private static func escaped(_ rest: inout Text) throws -> Text {
        guard let letter = rest.popFirst() else { throw Malformed() }
        if let index = "\"\\/bfnrt".unicodeScalars.firstIndex(of: letter) {
            let distance = "\"\\/bfnrt".unicodeScalars.distance(from: "\"\\/bfnrt".unicodeScalars.startIndex, to: index)
            return [Array("\"\\/\u{8}\u{c}\n\r\t".unicodeScalars)[distance]]
        }
        guard letter == "u" else { throw Malformed() }
        var units = [try codeUnit(&rest)]
        if UTF16.isLeadSurrogate(units[0]) {
            guard rest.hasPrefix("\\u") else { throw Malformed() }
            rest = rest.dropFirst(2)
            units.append(try codeUnit(&rest))
        }
        guard let text = String(validating: units, as: UTF16.self) else { throw Malformed() }
        return text.utf8.text
    }

    private static func codeUnit(_ rest: inout Text) throws -> UInt16 {
        let digits = rest.prefix(4)
        guard digits.count == 4, digits.allSatisfy(\.isHexadecimal), let unit = UInt16(digits.string, radix: 16) else {
            throw Malformed()
        }
        rest = rest.dropFirst(4)
        return unit
    }
}
