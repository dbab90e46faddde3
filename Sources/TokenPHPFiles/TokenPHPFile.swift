internal import TokenService

/// A token in one of token.php's data files: `data/<unique id>.txt`.
package struct TokenPHPFile: Hashable, Sendable {
    package let id: [UInt8]
    package let tokenInfo: [UInt8]
    package let format: TokenPHPFileFormat
    /// When the file was written, in seconds since 1970.
    package let modifiedAt: Int64

    /// Why an import skips a file, or an export skips a token.
    ///
    /// The raw values are keys in the JSON of `token-cache import` and `export`.
    package enum SkipReason: String, CaseIterable, Sendable {
        case otherName = "other_name"
        case notAFile = "not_a_file"
        case empty
        case idNotText = "id_not_text"
        case idTooLong = "id_too_long"
        case idWithTags = "id_with_tags"
        case contentNotText = "content_not_text"
        case tooLarge = "too_large"
        case unreadable
        case idWithSlash = "id_with_slash"
        case nameTooLong = "name_too_long"
        case newer
        case tooLargeToSend = "too_large_to_send"
        case unopened

        /// An explanation for people, printed after the number of files or tokens.
        package var explanation: String {
            switch self {
            case .otherName: "the name does not end in .txt, or there is no id before it"
            case .notAFile: "not a regular file; folders and links are not followed"
            case .empty: "the file is empty: the token info was not UTF-8, and token.php lost it"
            case .idNotText: "the id is not UTF-8, so that no client can request it"
            case .idTooLong: "the id is longer than 1024 bytes, so that no client can request it"
            case .idWithTags: "the id contains a tag, so that no client can request it"
            case .contentNotText: "the token info is not UTF-8, and cannot be put into a JSON answer"
            case .tooLarge: "the file is larger than 64 MiB"
            case .unreadable: "the file cannot be read; try again as its owner or root"
            case .idWithSlash: "the id contains a slash, which a file's name cannot"
            case .nameTooLong: "the id is longer than 251 bytes, too long for a file's name"
            case .newer: "the store has a newer token; --overwrite replaces it"
            case .tooLargeToSend:
                "the file is too large to be sent to a running server; stop the server, import again, and start it"
            case .unopened: "the row cannot be decrypted; see token-cache verify"
            }
        }
    }

    /// The file's name.
    package var name: [UInt8] { id + Self.suffix }

    static let suffix = Array(".txt".utf8)

    /// The id in a file's name.
    static func id(ofName name: [UInt8]) -> Result<[UInt8], SkipReasonError> {
        guard name.count > suffix.count, name.suffix(suffix.count).elementsEqual(suffix) else {
            return .failure(SkipReasonError(.otherName))
        }
        let id = Array(name.dropLast(suffix.count))
        guard (try? UTF8Span(validating: id.span)) != nil else { return .failure(SkipReasonError(.idNotText)) }
        guard id.count <= UniqueID.limit else { return .failure(SkipReasonError(.idTooLong)) }
        // The service removes tags from the ids of requests.
        guard TagRemoval.removeTags(from: id) == id else { return .failure(SkipReasonError(.idWithTags)) }
        return .success(id)
    }

    /// The name of an id's file.
    static func name(ofID id: [UInt8]) -> Result<[UInt8], SkipReasonError> {
        if id.contains(UInt8(ascii: "/")) { return .failure(SkipReasonError(.idWithSlash)) }
        // NAME_MAX of Linux's file systems.
        if id.count + suffix.count > 255 { return .failure(SkipReasonError(.nameTooLong)) }
        return .success(id + suffix)
    }

    /// A name as a C string, for system calls.
    static func terminated(_ name: [UInt8]) -> [CChar] {
        name.map { CChar(bitPattern: $0) } + [0]
    }

    /// A reason as an error.
    struct SkipReasonError: Error, Hashable {
        let reason: SkipReason

        init(_ reason: SkipReason) {
            self.reason = reason
        }
    }
}

/// A folder of token.php that cannot be used; the description says what to do.
package struct TokenPHPFolderError: Error, Hashable, CustomStringConvertible {
    package let path: String
    /// The system call that failed.
    package let call: String
    /// The system's error text.
    package let reason: String

    package var description: String {
        "the folder \(path) cannot be used (\(call): \(reason)); check the path, and run this as a user who may use the folder"
    }
}
