import Foundation
import TokenService

extension FuzzTarget {
    /// The removal of tags only leaves bytes out, and leaves a text without tags as it is.
    static let tags = FuzzTarget(
        "tags",
        words: [
            "<", ">", "<a>", "</a>", "< ", "<<", ">>", "<!--", "-->", "--", "<!", "<!-", "!-", "<?", "?>", "<?xml",
            "<?XML ",
            "<?php", "?>x", "<!DOCTYPE", "<!doctyp", "e", "L", "\"", "'", "\\\"", "\\", "(", ")", "\0", "\n", "\u{b}",
            "=\">\"",
        ]
    ) { input in
        var rest = input[...]
        let left = TagRemoval.removeTags(from: input)
        for byte in left {
            guard let index = rest.firstIndex(of: byte) else { throw Mismatch("\(left) is no part of \(input)") }
            rest = rest[(index + 1)...]
        }
        let hasTags = input.contains(UInt8(ascii: "<")) || input.contains(0)
        try require(hasTags || left == input, "\(input) has become \(left)")
    }
}

/// Answers of PHP 8.2, recorded: lines of JSON with an input and what PHP made of it, all in base64.
package enum RecordedAnswers {
    private struct Line: Decodable {
        let input: Data
        /// What `strip_tags` returns.
        let output: Data?
    }

    /// Compares the removal of tags with PHP's; returns the number of texts, and those with another outcome.
    package static func checkTags(_ path: String) throws -> (compared: Int, differences: [String]) {
        let lines = try String(contentsOfFile: path, encoding: .utf8).split(separator: "\n").map { line in
            try JSONDecoder().decode(Line.self, from: Data(line.utf8))
        }
        let different = lines.filter { TagRemoval.removeTags(from: Array($0.input)) != Array($0.output ?? Data()) }
        return (lines.count, different.map { $0.input.base64EncodedString() })
    }
}
