import Glibc
import JSON
import System
import TokenService

/// A token in one of token.php's data files: `data/<unique id>.txt`.
package struct TokenPHPFile: Hashable, Sendable {
    package let id: [UInt8]
    package let tokenInfo: [UInt8]
    /// When the file was written, in seconds since 1970; a second earlier for a file that was read in that very second, and nil if it is
    /// dated in the future.
    package let modifiedAt: Int64?

    /// Why an import skips a file, or an export skips a token.
    ///
    /// The raw values are keys in the JSON of `token-cache import` and `export`.
    package enum SkipReason: String, CaseIterable, Error {
        case otherName = "other_name"
        case notAFile = "not_a_file"
        case empty
        case notAnID = "not_an_id"
        case contentNotText = "content_not_text"
        case lost
        case tooLarge = "too_large"
        case unreadable
        case notAFileName = "not_a_file_name"
        case newer
        case tooLargeToSend = "too_large_to_send"
        case unopened

        /// An explanation for people, printed after the number of files or tokens.
        package var explanation: String {
            switch self {
            case .otherName: "the name does not end in .txt, or there is no id before it"
            case .notAFile: "not a regular file; folders and links are not followed"
            case .empty: "the file is empty: the token info was not UTF-8, and token.php lost it"
            case .notAnID: "no client can request the id, which is not UTF-8, has a tag, or more than 1024 bytes"
            case .contentNotText: "the token info is not UTF-8, and cannot be put into a JSON answer"
            case .lost: "the JSON in the file is cut off, or has no text: token.php lost the token info"
            case .tooLarge: "the file is larger than 64 MiB"
            case .unreadable: "the file cannot be read; try again as its owner or root"
            case .notAFileName: "the id cannot be a file's name, as it has a slash, or more than 251 bytes"
            case .newer: "the store has this token already, or a newer one"
            case .tooLargeToSend:
                "the file is too large to be sent to a running server; stop the server, import again, and start it"
            case .unopened: "rows that cannot be decrypted, or damaged pages; see token-cache verify"
            }
        }
    }

    /// The file's name.
    package var name: [UInt8] { id + Self.suffix }

    private static let suffix = Array(".txt".utf8)

    /// The id in a file's name.
    static func id(ofName name: [UInt8]) throws(SkipReason) -> [UInt8] {
        guard name.count > suffix.count, name.suffix(suffix.count).elementsEqual(suffix) else { throw .otherName }
        let id = Array(name.dropLast(suffix.count))
        // The service removes tags from the ids of requests.
        guard (try? UTF8Span(validating: id.span)) != nil, id.count <= UniqueID.limit,
            TagRemoval.removeTags(from: id) == id
        else { throw .notAnID }
        return id
    }

    /// The name of an id's file.
    static func name(ofID id: [UInt8]) throws(SkipReason) -> [UInt8] {
        // NAME_MAX of Linux's file systems.
        guard !id.contains(UInt8(ascii: "/")), id.count + suffix.count <= 255 else { throw .notAFileName }
        return id + suffix
    }

    /// A name as a C string, for system calls.
    static func terminated(_ name: [UInt8]) -> [CChar] {
        name.map { CChar(bitPattern: $0) } + [0]
    }
}

extension TokenPHPFile {
    /// The content of a file: the token info as a JSON string, as PHP's `json_encode` writes it.
    package static func content(of tokenInfo: [UInt8]) -> [UInt8] {
        var content = [UInt8(ascii: "\"")]
        JSONText.appendEscaped(tokenInfo, to: &content)
        return content + [UInt8(ascii: "\"")]
    }

    /// The token info in a file's content: a JSON string, or the member `token_info` of an object, as variants of token.php write it;
    /// any other object or text is the token info itself.
    ///
    /// White space around JSON is no content, as for PHP's `json_decode`.
    ///
    /// - Throws: `lost` if there is no string, as token.php would not have answered with one.
    package static func tokenInfo(in content: [UInt8]) throws(SkipReason) -> [UInt8] {
        let bytes = content.span
        var cursor = JSONCursor(position: 0, end: content.count)
        cursor.skipSpace(bytes)
        do throws(JSONCursor.Malformed) {
            let found: [UInt8]?
            switch cursor.peek(bytes) {
            case UInt8(ascii: "\""): found = try cursor.string(bytes)
            case UInt8(ascii: "{"): found = try object(bytes, &cursor)
            default: return content
            }
            cursor.skipSpace(bytes)
            if let found, cursor.isAtEnd { return found }
        } catch {}
        throw .lost
    }

    /// The member `token_info` of an object, or all of an object that has none; nil if it is not a string.
    private static func object(
        _ bytes: Span<UInt8>, _ cursor: inout JSONCursor
    ) throws(JSONCursor.Malformed) -> [UInt8]? {
        let start = cursor.position
        var (found, isMember): ([UInt8]?, Bool) = (nil, false)
        try cursor.expect(UInt8(ascii: "{"), bytes)
        try cursor.forEachMember(bytes) { (name, cursor) throws(JSONCursor.Malformed) in
            let isText = cursor.peek(bytes) == UInt8(ascii: "\"")
            guard name.elementsEqual("token_info".utf8) else { return try cursor.skipValue(bytes, depth: 1) }
            // The last one counts.
            (found, isMember) = (nil, true)
            if isText { found = try cursor.string(bytes) } else { try cursor.skipValue(bytes, depth: 1) }
        }
        return isMember ? found : bytes.bytes(start..<cursor.position)
    }
}

/// A folder of token.php that cannot be used; the description says what to do.
package struct TokenPHPFolderError: Error, Hashable, CustomStringConvertible {
    let path: String
    let error: SystemError

    package var description: String {
        if error.code == EWOULDBLOCK { return "another export is writing to \(path); try again when it is done" }
        if error.code == ENOTEMPTY {
            return """
                the folder \(path) has files *.txt already, among which may be tokens of users who have been erased since; name a new \
                folder
                """
        }
        let advice = error.fileAdvice(otherwise: "check the path, and run this as a user who may use the folder")
        return "the folder \(path) cannot be used (\(error))\(advice)"
    }
}
