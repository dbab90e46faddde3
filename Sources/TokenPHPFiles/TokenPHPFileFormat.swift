internal import JSON
internal import TokenService

/// The format of the token info in one of token.php's files.
package enum TokenPHPFileFormat: String, Codable, CaseIterable, Sendable {
    /// The token info as a JSON string, as PHP's `json_encode` writes it; token.php's own format.
    case json
    /// A JSON object with the single member `token_info`, a string, as variants of token.php write it.
    case object
    /// The token info itself.
    case raw

    /// The content of a file with this token info.
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

    /// Detects the format of a file's content, and reads the token info.
    package static func read(_ content: [UInt8]) -> (tokenInfo: [UInt8], format: TokenPHPFileFormat) {
        do throws(JSONScanner.Malformed) {
            switch content.first {
            case UInt8(ascii: "\""): return (try string(content), .json)
            case UInt8(ascii: "{"): return (try member(content), .object)
            default: return (content, .raw)
            }
        } catch {
            // Any other JSON is itself a token info.
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
