internal import JSON
internal import TokenService

/// How a file of token.php's holds its token info.
package enum TokenPHPFileFormat: String, Codable, CaseIterable, Sendable {
    /// What PHP's `json_encode` makes of the token info, a string in quotes: what token.php writes.
    case json
    /// A JSON object whose one member `token_info` is that string, as variants of the script write it.
    case object
    /// The token info itself.
    case raw

    /// The content of a file.
    package func content(of tokenInfo: [UInt8]) -> [UInt8] {
        var content: [UInt8] = []
        switch self {
        case .json: appendString(tokenInfo, to: &content)
        case .object:
            content += #"{"token_info":"#.utf8
            appendString(tokenInfo, to: &content)
            content += "}".utf8
        case .raw: content = tokenInfo
        }
        return content
    }

    private func appendString(_ tokenInfo: [UInt8], to content: inout [UInt8]) {
        content.append(UInt8(ascii: "\""))
        JSONText.appendEscaped(tokenInfo, to: &content)
        content.append(UInt8(ascii: "\""))
    }

    /// Finds out the format of a file's content, and reads the token info.
    package static func read(_ content: [UInt8]) -> (tokenInfo: [UInt8], format: TokenPHPFileFormat) {
        do throws(JSONScanner.Malformed) {
            switch content.first {
            case UInt8(ascii: "\""): return (try string(content), .json)
            case UInt8(ascii: "{"): return (try member(content), .object)
            default: return (content, .raw)
            }
        } catch {
            // JSON of another shape is somebody's token info.
            return (content, .raw)
        }
    }

    private static func string(_ content: [UInt8]) throws(JSONScanner.Malformed) -> [UInt8] {
        var scanner = JSONScanner(position: 0, end: content.count)
        let text = try scanner.string(content.span)
        guard scanner.isAtEnd else { throw JSONScanner.Malformed() }
        return text
    }

    private static func member(_ content: [UInt8]) throws(JSONScanner.Malformed) -> [UInt8] {
        var scanner = JSONScanner(position: 0, end: content.count)
        let bytes = content.span
        try scanner.expect(UInt8(ascii: "{"), bytes)
        var found: [UInt8]?
        try scanner.forEachMember(bytes) { (name, scanner) throws(JSONScanner.Malformed) in
            guard found == nil, name.elementsEqual("token_info".utf8) else { throw JSONScanner.Malformed() }
            found = try scanner.string(bytes)
        }
        guard let found, scanner.isAtEnd else { throw JSONScanner.Malformed() }
        return found
    }
}
