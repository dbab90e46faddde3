internal import Glibc
internal import JSON
package import System

/// A file of keys, and the keys that it had when it was last read without an error.
package typealias APIKeyFile = WatchedFiles<String, APIKeys, APIKeyFileError>

extension APIKeys {
    /// The keys of a file that must exist.
    package static func loadExisting(_ path: String) throws(APIKeyFileError) -> APIKeys {
        guard let keys = try load(path) else { throw .missing(path: path) }
        return keys
    }

    /// The keys of a file; nil if there is no such file.
    ///
    /// - Parameter allowsEmpty: Whether a file of zero bytes has no keys; to a server it is one whose text was lost.
    package static func load(
        _ path: String, allowsEmpty: Bool = false
    ) throws(APIKeyFileError) -> APIKeys? {
        let text: [UInt8]
        do throws(TrustedFile.Fault) {
            text = try TrustedFile.read(path)
        } catch {
            if case .unreadable(let error) = error, error.code == ENOENT { return nil }
            throw .unusable(path: path, error)
        }
        guard allowsEmpty || !text.isEmpty else { throw .empty(path: path) }
        do throws(APIKeysText.Malformed) {
            return try APIKeysText.keys(of: text)
        } catch {
            throw .malformed(path: path, line: error.line, reason: error.reason)
        }
    }

    /// Changes the keys of a file, which is replaced as a whole and created with mode 0600 if it is missing.
    ///
    /// Whoever could read the file can read the new one: otherwise a server of another user would not learn of the change.
    ///
    /// If `body` throws, the file stays as it is. A link at the path is followed, and its target replaced.
    package static func change<Result>(
        _ path: String, _ body: (inout APIKeys) throws -> Result
    ) throws -> Result {
        let target = try FollowedPath(path).path
        return try FileReplacement.withLock(onFolderOf: target) {
            var keys = try load(target, allowsEmpty: true) ?? APIKeys()
            let result = try body(&keys)
            do throws(SystemError) {
                try FileReplacement.replace(target, with: APIKeysText.bytes(of: keys), keeping: 0o644)
            } catch {
                throw APIKeyFileError.unwritable(path: path, error)
            }
            return result
        }
    }
}

/// Why the keys of a file cannot be read or changed; says what to do about it, and nothing of the keys.
package enum APIKeyFileError: Error, Hashable, CustomStringConvertible {
    case missing(path: String)
    case unusable(path: String, TrustedFile.Fault)
    case empty(path: String)
    /// Lines count from 1.
    case malformed(path: String, line: Int, reason: String)
    case unwritable(path: String, SystemError)

    package var description: String {
        switch self {
        case .missing(let path):
            """
            the file \(path) of access.api.keys_file does not exist; `token-cache access keys add NAME --scope \
            sessions` makes it with a first key
            """
        case .unusable(let path, let fault): "the file \(path) of API keys \(fault)"
        case .empty(let path):
            """
            the file \(path) of API keys is empty, as after a write for which the disk had no room; \
            `token-cache access keys add` writes a key, and a file without keys has a line that begins with #
            """
        case .malformed(let path, let line, let reason): "the API keys in \(path), line \(line): \(reason)"
        case .unwritable(let path, let error):
            """
            the API keys in \(path) cannot be written: \(error.reason)\
            \(error.fileAdvice(otherwise: "the folder has to exist, and this command needs write access to it"))
            """
        }
    }
}

/// The text of the file of API keys: a line of JSON for each.
///
///     {"name":"backend","scopes":["sessions","tokens:read"],"sha256":"…64 digits…","created":1795356800,"expires":1803132800}
///
/// Times are in seconds since 1970; `expires` may be missing. Empty lines and lines that begin with `#` are skipped. A member
/// that is not known is an error: a mistyped `expires` would make a key that never ends.
enum APIKeysText {
    /// Why a text holds no keys; lines count from 1.
    struct Malformed: Error, Hashable {
        let line: Int
        let reason: String
    }

    static func keys(of text: [UInt8]) throws(Malformed) -> APIKeys {
        var keys = APIKeys()
        for (index, line) in text.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false).enumerated() {
            let content = line.drop { $0 == 0x20 || $0 == 0x09 || $0 == 0x0d }
            if content.isEmpty || content.first == UInt8(ascii: "#") { continue }
            let fault: String
            do throws(Fault) {
                let entry = try Self.entry(Array(content))
                do throws(APIKeys.AdditionError) {
                    try keys.add(entry.key, digest: entry.digest)
                    continue
                } catch {
                    switch error {
                    case .nameExists: fault = "\(entry.key.name) is the name of an earlier key too"
                    case .secretExists: fault = "an earlier key has the same secret as \(entry.key.name)"
                    case .tooMany: fault = "there are more than \(APIKeys.limit) keys"
                    }
                }
            } catch {
                fault = error.reason
            }
            throw Malformed(line: index + 1, reason: fault)
        }
        return keys
    }

    /// Never empty, so that a file without keys differs from one whose text was lost.
    static func bytes(of keys: APIKeys) -> [UInt8] {
        if keys.entries.isEmpty { return Array("# no keys\n".utf8) }
        let lines = keys.entries.map { entry in
            // Neither names nor scopes have characters that JSON would escape.
            let scopes = APIScope.allCases.filter(entry.key.scopes.contains).map { "\"\($0.rawValue)\"" }
            let expires = entry.key.expiresAt.map { ",\"expires\":\($0)" } ?? ""
            return """
                {"name":"\(entry.key.name)","scopes":[\(scopes.joined(separator: ","))],\
                "sha256":"\(hex(entry.digest))","created":\(entry.key.createdAt)\(expires)}

                """
        }
        return Array(lines.joined().utf8)
    }

    // MARK: - A line

    private struct Fault: Error {
        let reason: String
    }

    /// The members of a line.
    private struct Members {
        var name: String?
        var scopes: Set<APIScope>?
        var digest: [UInt8]?
        var created: Int64?
        var expires: Int64?
        var seen: Set<[UInt8]> = []
        /// Why the line is refused although it is JSON.
        var reason: String?
    }

    private static func entry(_ line: [UInt8]) throws(Fault) -> APIKeys.Entry {
        let bytes = line.span
        var scanner = JSONScanner(position: 0, end: bytes.count)
        var members = Members()
        do throws(JSONScanner.Malformed) {
            try scanner.expect(UInt8(ascii: "{"), bytes)
            try scanner.forEachMember(bytes) { (name, scanner) throws(JSONScanner.Malformed) in
                try read(name, &members, &scanner, bytes)
            }
            scanner.skipSpace(bytes)
            guard scanner.isAtEnd else { throw JSONScanner.Malformed() }
        } catch {
            throw Fault(
                reason: members.reason
                    ?? "it is no API key as token-cache access keys add writes one")
        }
        guard let name = members.name, let scopes = members.scopes, let digest = members.digest,
            let created = members.created
        else { throw Fault(reason: "a key needs name, scopes, sha256 and created") }
        let key = APIKey(name: name, scopes: scopes, createdAt: created, expiresAt: members.expires)
        return APIKeys.Entry(key: key, digest: digest)
    }

    private static func read(
        _ name: [UInt8], _ members: inout Members, _ scanner: inout JSONScanner, _ bytes: Span<UInt8>
    ) throws(JSONScanner.Malformed) {
        let member = String(decoding: name, as: UTF8.self)
        guard members.seen.insert(name).inserted else { throw refuse("a member is there twice", &members) }
        switch member {
        case "name":
            let text = String(decoding: try scanner.string(bytes), as: UTF8.self)
            guard APIKey.isName(text) else {
                throw refuse("its name is not allowed; allowed is \(APIKey.allowedNames)", &members)
            }
            members.name = text
        case "scopes": members.scopes = try scopes(&members, &scanner, bytes)
        case "sha256":
            guard let digest = digest(try scanner.string(bytes)) else {
                throw refuse("its sha256 is not 64 hexadecimal digits in lower case", &members)
            }
            members.digest = digest
        case "created", "expires":
            let start = scanner.position
            try scanner.skipValue(bytes, depth: 0)
            let text = bytes.extracting(start..<scanner.position)
            var digits = ""
            for index in text.indices { digits.unicodeScalars.append(Unicode.Scalar(text[index])) }
            guard let time = Int64(digits), time >= 0 else {
                throw refuse("\(member) is no number of seconds since 1970", &members)
            }
            if member == "created" { members.created = time } else { members.expires = time }
        default:
            throw refuse("it has an unknown member; allowed are name, scopes, sha256, created and expires", &members)
        }
    }

    private static func scopes(
        _ members: inout Members, _ scanner: inout JSONScanner, _ bytes: Span<UInt8>
    ) throws(JSONScanner.Malformed) -> Set<APIScope> {
        let allowed = APIScope.allCases.map(\.rawValue).joined(separator: ", ")
        var scopes: Set<APIScope> = []
        try scanner.expect(UInt8(ascii: "["), bytes)
        repeat {
            scanner.skipSpace(bytes)
            guard scanner.peek(bytes) == UInt8(ascii: "\""),
                let scope = APIScope(rawValue: String(decoding: try scanner.string(bytes), as: UTF8.self))
            else { throw refuse("it has an unknown scope or none; allowed are \(allowed)", &members) }
            scopes.insert(scope)
            scanner.skipSpace(bytes)
            if scanner.peek(bytes) == UInt8(ascii: "]") { break }
            try scanner.expect(UInt8(ascii: ","), bytes)
        } while true
        try scanner.expect(UInt8(ascii: "]"), bytes)
        return scopes
    }

    /// Ends the reading of a line for a reason.
    private static func refuse(_ reason: String, _ members: inout Members) -> JSONScanner.Malformed {
        members.reason = reason
        return JSONScanner.Malformed()
    }

    // MARK: - Digests

    private static let digits = Array("0123456789abcdef".utf8)

    private static func hex(_ bytes: [UInt8]) -> String {
        String(decoding: bytes.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }, as: UTF8.self)
    }

    private static func digest(_ text: [UInt8]) -> [UInt8]? {
        let values = text.compactMap { digits.firstIndex(of: $0) }
        guard values.count == 64, text.count == 64 else { return nil }
        return stride(from: 0, to: 64, by: 2).map { UInt8(values[$0] << 4 | values[$0 + 1]) }
    }
}
