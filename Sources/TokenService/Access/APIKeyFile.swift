import Cryptography
import Glibc
import JSON
package import System

/// A file of keys, and the keys that it had when it was last read without an error.
package typealias APIKeyFile = WatchedFiles<String, APIKeys, KeyFileError>

extension APIKeys {
    /// The keys of a file that must exist.
    package static func loadExisting(_ path: String) throws(KeyFileError) -> APIKeys {
        if let keys = try load(path) { return keys }
        throw missing(path)
    }

    /// The keys of a file; nil if there is no such file.
    package static func load(_ path: String) throws(KeyFileError) -> APIKeys? {
        guard let text = try text(of: path) else { return nil }
        return try APIKeysText.keys(of: text, path)
    }

    private static func missing(_ path: String) -> KeyFileError {
        KeyFileError(
            path, "does not exist; `token-cache access keys add NAME --scope sessions` makes it with a first key")
    }

    /// The text of a file; nil if there is no such file.
    ///
    /// - Parameter allowsEmpty: Whether an empty file counts as one without keys; otherwise it is refused, as its text may be lost.
    private static func text(of path: String, allowsEmpty: Bool = false) throws(KeyFileError) -> [UInt8]? {
        do {
            _ = try FileStatus.read(path)
        } catch {
            // A file whose status cannot be read may have keys; reading it says why.
            if error.code == ENOENT { return nil }
        }
        let text = try TrustedFile.read(path)
        guard allowsEmpty || !text.isEmpty else {
            throw KeyFileError(
                path,
                """
                is empty, as after a write for which the disk had no room; add a key with `token-cache access keys add`, or, if \
                there shall be none, a line that begins with #
                """)
        }
        return text
    }

    /// Changes the keys of a file, which is replaced as a whole; its comments stay.
    ///
    /// Whoever could read the file can read the new one: otherwise a server of another user would not learn of the change.
    ///
    /// If `body` throws, the file stays as it is. A link at the path is followed, and its target replaced.
    ///
    /// - Parameter begins: Whether a missing file is created, with mode 0600, and an empty one counts as one without keys.
    package static func change<Result>(
        _ path: String, begins: Bool = false, _ body: (inout APIKeys) throws -> Result
    ) throws -> Result {
        let target = try FollowedPath(path).path
        func isLocked(_ fault: LockedFolder) -> any Error { KeyFileError(path, "cannot be written: \(fault)") }
        return try FileReplacement.withLock(onFolderOf: target, or: isLocked) {
            let text = try text(of: target, allowsEmpty: begins)
            guard begins || text != nil else { throw missing(path) }
            var keys = try APIKeysText.keys(of: text ?? [], target)
            let result = try body(&keys)
            do throws(SystemError) {
                try FileReplacement.replace(target, with: APIKeysText.bytes(of: keys, in: text ?? []), keeping: 0o644)
            } catch {
                let advice = error.fileAdvice(
                    otherwise: "the folder has to exist, and this command needs write access to it")
                throw KeyFileError(path, "cannot be written: \(error.reason)\(advice)")
            }
            return result
        }
    }
}

/// The text of the file of API keys: a line of JSON for each.
///
///     {"name":"backend","scopes":["sessions","tokens:read"],"sha256":"…64 digits…","created":1795356800,"expires":1803132800}
///
/// Times are in seconds since 1970; `expires` may be missing. Empty lines and lines that begin with `#` are skipped. An unknown
/// member is an error: a mistyped `expires` would make a key that never expires.
enum APIKeysText {
    /// - Parameter path: The file's path, for errors.
    static func keys(of text: [UInt8], _ path: String) throws(KeyFileError) -> APIKeys {
        var keys = APIKeys()
        for (index, line) in text.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false).enumerated() {
            let content = line.drop { $0 == 0x20 || $0 == 0x09 || $0 == 0x0d }
            if content.isEmpty || content.first == UInt8(ascii: "#") { continue }
            func fault(_ reason: String) -> KeyFileError {
                KeyFileError(path, "has a fault in line \(index + 1): \(reason)")
            }
            guard let entry = entry(Array(content)) else { throw fault(form) }
            do {
                try keys.add(entry.key, digest: entry.digest)
            } catch {
                throw fault(error.rawValue)
            }
        }
        return keys
    }

    /// Stands in a file without anything else, so that it differs from one whose text was lost.
    private static let noKeys = Array("# no keys".utf8)

    /// The text with these keys: the former one's comments and the lines of keys that stay, and then new keys.
    static func bytes(of keys: APIKeys, in former: [UInt8] = []) -> [UInt8] {
        var added = keys.entries
        var lines: [[UInt8]] = []
        for line in former.split(separator: UInt8(ascii: "\n")).map(Array.init) where line != noKeys {
            if let entry = entry(line) {
                guard let index = added.firstIndex(where: { $0.digest == entry.digest }) else { continue }
                added.remove(at: index)
            }
            lines.append(line)
        }
        lines += added.map { entry in
            // Neither names nor scopes have characters that JSON would escape.
            let scopes = APIScope.allCases.filter(entry.key.scopes.contains).map { "\"\($0.rawValue)\"" }
            let expires = entry.key.expiresAt.map { ",\"expires\":\($0)" } ?? ""
            return Array(
                """
                {"name":"\(entry.key.name)","scopes":[\(scopes.joined(separator: ","))],\
                "sha256":"\(Hexadecimal.text(entry.digest))","created":\(entry.key.createdAt)\(expires)}
                """.utf8)
        }
        return (lines.isEmpty ? [noKeys] : lines).flatMap { $0 + [UInt8(ascii: "\n")] }
    }

    // MARK: - A line

    private static let memberNames = ["name", "scopes", "sha256", "created", "expires"]

    private static let form = """
        it is not an API key in the form of `token-cache access keys add`: a JSON object with name (\(APIKey.allowedNames)), scopes \
        (some of \(APIScope.allCases.map(\.rawValue).joined(separator: ", "))), sha256 (64 hexadecimal digits), created and perhaps \
        expires (seconds since 1970), each of them once, and nothing else
        """

    private static func entry(_ line: [UInt8]) -> APIKeys.Entry? {
        guard let object = JSONObject(line.span, memberLimit: memberNames.count),
            object.names.allSatisfy({ name in memberNames.contains { $0.utf8.elementsEqual(name) } }),
            let name = object.text("name"), APIKey.isName(name), case .array(let range) = object["scopes"],
            let words = JSONObject.strings(line.span, range, limit: APIScope.allCases.count), !words.isEmpty,
            let digits = object.text("sha256"), let digest = Hexadecimal.decode(digits.utf8),
            digest.count == SHA256Digest.length, let createdAt = time("created", of: object)
        else { return nil }
        let scopes = Set(words.compactMap { APIScope(rawValue: String(decoding: $0, as: UTF8.self)) })
        let expiresAt = time("expires", of: object)
        guard scopes.count == words.count, object.has("expires") == (expiresAt != nil) else { return nil }
        return APIKeys.Entry(
            key: APIKey(name: name, scopes: scopes, createdAt: createdAt, expiresAt: expiresAt), digest: digest)
    }

    /// In seconds since 1970; nil if there is no such member, or another value.
    private static func time(_ name: String, of object: JSONObject) -> Int64? {
        object.number(name).flatMap(Int64.init).flatMap { $0 < 0 ? nil : $0 }
    }
}
