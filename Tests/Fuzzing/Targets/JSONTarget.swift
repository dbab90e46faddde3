import Foundation
import JSON
import TokenPHPFiles
import TokenService

extension FuzzTarget {
    /// What reads JSON: the scanner, and the files of token.php.
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

    /// The scanner takes a value if the grammar does.
    private static func scan(_ input: [UInt8]) throws {
        // The scanner does not skip white space before a value that it is told to skip.
        let text = Array(input.drop { [0x20, 0x09, 0x0a, 0x0d].contains($0) })
        var scanner = JSONScanner(position: 0, end: text.count)
        var isRead = false
        do throws(JSONScanner.Malformed) {
            try scanner.skipValue(text.span, depth: 1)
            scanner.skipSpace(text.span)
            isRead = scanner.isAtEnd
        } catch {}
        let model = JSONModel.value(of: text.text, deepest: 63)
        try compare(isRead, model != nil, "whether it is JSON")
        guard case .string(let expected)? = model else { return }
        scanner = JSONScanner(position: 0, end: text.count)
        let string = try scanner.string(text.span)
        try compare(string.text.string, expected.string, "the string")
    }

    /// A file of token.php gives what PHP's `json_decode` gives, and what is written is read again.
    private static func readFile(_ input: [UInt8]) throws {
        let read = TokenPHPFileFormat.read(input)
        var (expected, format) = (input, TokenPHPFileFormat.raw)
        // White space at the ends is no part of what token.php writes.
        switch JSONModel.value(of: input.text) {
        case .string(let text)? where input.first == UInt8(ascii: "\"") && input.last == UInt8(ascii: "\""):
            (expected, format) = (text.map { UInt8($0.value) }, .json)
        case .object(let members)? where input.first == UInt8(ascii: "{") && input.last == UInt8(ascii: "}"):
            if members.count == 1, members[0].name.string == "token_info", case .string(let text) = members[0].value {
                (expected, format) = (text.map { UInt8($0.value) }, .object)
            }
        default: break
        }
        try compare(read.format, format, "the format of a file")
        try compare(read.tokenInfo.text.string, expected.text.string, "the token info of a file")
        guard String(validating: input, as: UTF8.self) != nil else { return }
        for format in TokenPHPFileFormat.allCases where format != .raw {
            let content = format.content(of: input)
            let again = TokenPHPFileFormat.read(content)
            try require(again.tokenInfo == input && again.format == format, "\(format) is read otherwise than written")
            let decoded = try JSONSerialization.jsonObject(with: Data(content), options: .fragmentsAllowed)
            let text = decoded as? String ?? (decoded as? [String: String])?["token_info"]
            try require(text.map { Array($0.utf8) } == input, "\(format) means something else to others")
        }
    }
}
