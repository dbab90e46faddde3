import Foundation
import TokenService

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
