import Foundation
import TokenService

extension FuzzTarget {
    /// The removal of tags, compared with PHP's.
    static let tags = FuzzTarget(
        "tags",
        words: [
            "<", ">", "<a>", "</a>", "< ", "<<", ">>", "<!--", "-->", "--", "<!", "<!-", "!-", "<?", "?>", "<?xml",
            "<?XML ",
            "<?php", "?>x", "<!DOCTYPE", "<!doctyp", "e", "L", "\"", "'", "\\\"", "\\", "(", ")", "\0", "\n", "\u{b}",
            "=\">\"",
        ]
    ) { input in
        let found = TagRemoval.removeTags(from: input)
        var model = TagModel(input)
        try compare(found.text.string, model.removeTags().text.string, "what is left")
    }
}

/// PHP 8.2's `strip_tags` without allowed tags, state by state as in ext/standard/string.c.
///
/// `Tests/Fuzzing/corpus/tags-of-php.jsonl` has PHP's own answers, with which this is compared too.
struct TagModel {
    private enum State {
        case text, tag, script, declaration, comment
    }

    private let input: [UInt8]
    private var place = 0

    init(_ input: [UInt8]) {
        self.input = input
    }

    /// The byte so many places before the present one; 0 before the beginning.
    private func before(_ distance: Int) -> UInt8 { place >= distance ? input[place - distance] : 0 }

    private func isBefore(_ text: String) -> Bool {
        let start = place - text.utf8.count
        return start >= 0 && input[start..<place].text.lowercased == text
    }

    private var isBeforeSpace: Bool {
        place + 1 < input.count && Unicode.Scalar(input[place + 1]).isSpace
    }

    mutating func removeTags() -> [UInt8] {
        var output: [UInt8] = []
        var (state, depth, brackets, isXML) = (State.text, 0, 0, false)
        // PHP's `in_q` and `lc`.
        var (quote, last): (Character?, Character?) = (nil, nil)
        func toggle(_ sign: Character) {
            if quote == nil { quote = sign } else if quote == sign { quote = nil }
        }
        while place < input.count {
            defer { place += 1 }
            let sign = Character(Unicode.Scalar(input[place]))
            let previous = Character(Unicode.Scalar(before(1)))
            switch (state, sign) {
            case (.comment, ">"):
                if quote == nil, isBefore("--") { state = .text }
            case (.comment, _), (.text, "\0"): break
            case (.text, "<") where !isBeforeSpace: (last, state) = ("<", .tag)
            case (.text, "<"): output.append(input[place])
            case (.text, ">") where depth > 0: depth -= 1
            case (.text, _): output.append(input[place])
            case (_, ">") where depth > 0: depth -= 1
            case (_, ">") where quote != nil: break
            case (.tag, "<"):
                if quote == nil, !isBeforeSpace { depth += 1 }
            case (.tag, ">"):
                last = ">"
                if !(isXML && previous == "-") { (state, isXML) = (.text, false) }
            case (.tag, "\""), (.tag, "'"):
                if place > 0 { toggle(sign) }
            case (.tag, "!") where previous == "<": (last, state) = ("!", .declaration)
            case (.tag, "?") where previous == "<": (brackets, state) = (0, .script)
            case (.script, "("), (.script, ")"):
                if last != "\"", last != "'" {
                    last = sign
                    brackets += sign == "(" ? 1 : -1
                }
            case (.script, ">"):
                if brackets == 0, last != "\"", previous == "?" { state = .text }
            case (.script, "\""), (.script, "'"):
                guard place > 0, previous != "\\" else { break }
                if last == sign { last = nil } else if last != "\\" { last = sign }
                toggle(sign)
            case (.script, "l"), (.script, "L"):
                if place > 4, isBefore("<?xm") { (state, isXML) = (.tag, true) }
            case (.declaration, ">"): state = .text
            case (.declaration, "\""), (.declaration, "'"):
                if place > 0, previous != "\\" { toggle(sign) }
            case (.declaration, "-"):
                if isBefore("!-") { state = .comment }
            case (.declaration, "e"), (.declaration, "E"):
                if place > 6, isBefore("doctyp") { state = .tag }
            default: break
            }
        }
        return output
    }
}

/// Answers of PHP 8.2, recorded: lines of JSON with an input and what PHP made of it, all in base64.
package enum RecordedAnswers {
    private struct Line: Decodable {
        let input: Data
        /// What `strip_tags` returns.
        let output: Data?
    }

    private static func lines(_ path: String) throws -> [Line] {
        let text = try String(contentsOfFile: path, encoding: .utf8)
        return try text.split(separator: "\n").map { try JSONDecoder().decode(Line.self, from: Data($0.utf8)) }
    }

    /// What differs from PHP's removal of tags, and how many answers were compared.
    package static func checkTags(_ path: String) throws -> (compared: Int, differences: [String]) {
        let lines = try lines(path)
        var differences: [String] = []
        for line in lines {
            var model = TagModel(Array(line.input))
            let expected = Array(line.output ?? Data())
            let isSame = TagRemoval.removeTags(from: Array(line.input)) == expected
            if !isSame || model.removeTags() != expected {
                differences.append("\(isSame ? "the model" : "the program"), \(line.input.base64EncodedString())")
            }
        }
        return (lines.count, differences)
    }
}
