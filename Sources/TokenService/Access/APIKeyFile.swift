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

    private static let memberNames = ["name", "scopes", "sha256", "created", "expires"]

    private static func entry(_ line: [UInt8]) throws(Fault) -> APIKeys.Entry {
        let object: JSONObject
        do throws(JSONObject.Failure) {
            object = try JSONObject(line.span, memberLimit: 2 * memberNames.count)
        } catch {
            throw Fault(
                reason: error == .repeatedMember
                    ? "a member is there twice" : "it is no API key as token-cache access keys add writes one")
        }
        guard object.names.allSatisfy({ name in memberNames.contains { $0.utf8.elementsEqual(name) } }) else {
            throw Fault(reason: "it has an unknown member; allowed are name, scopes, sha256, created and expires")
        }
        guard let name = object["name"], let scopes = object["scopes"], let digest = object["sha256"],
            object.has("created")
        else { throw Fault(reason: "a key needs name, scopes, sha256 and created") }
        guard case .string(let text) = name, APIKey.isName(String(decoding: text, as: UTF8.self)) else {
            throw Fault(reason: "its name is not allowed; allowed is \(APIKey.allowedNames)")
        }
        guard case .string(let digits) = digest, let digest = self.digest(digits) else {
            throw Fault(reason: "its sha256 is not 64 hexadecimal digits in lower case")
        }
        let key = APIKey(
            name: String(decoding: text, as: UTF8.self), scopes: try self.scopes(scopes, of: line),
            createdAt: try time("created", of: object),
            expiresAt: object.has("expires") ? try time("expires", of: object) : nil)
        return APIKeys.Entry(key: key, digest: digest)
    }

    private static func time(_ name: String, of object: JSONObject) throws(Fault) -> Int64 {
        guard case .number(let digits) = object[name], let time = Int64(String(decoding: digits, as: UTF8.self)),
            time >= 0
        else { throw Fault(reason: "\(name) is no number of seconds since 1970") }
        return time
    }

    private static func scopes(_ value: JSONObject.Value, of line: [UInt8]) throws(Fault) -> Set<APIScope> {
        guard case .array(let range) = value,
            let names = JSONObject.strings(line.span, range, limit: 2 * APIScope.allCases.count), !names.isEmpty
        else { throw unknownScope }
        var scopes: Set<APIScope> = []
        for name in names {
            guard let scope = APIScope(rawValue: String(decoding: name, as: UTF8.self)) else { throw unknownScope }
            scopes.insert(scope)
        }
        return scopes
    }

    private static var unknownScope: Fault {
        let allowed = APIScope.allCases.map(\.rawValue).joined(separator: ", ")
        return Fault(reason: "it has an unknown scope or none; allowed are \(allowed)")
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
