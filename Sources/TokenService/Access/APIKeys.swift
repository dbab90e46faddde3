import Cryptography

/// An API key of an app's server, as the server knows it: its secret is not kept, only a hash.
package struct APIKey: Hashable, Sendable {
    /// Names the key for people and in the audit log; 1 to 64 letters, digits, dots, `-` and `_`.
    package let name: String
    /// At least one.
    package let scopes: Set<APIScope>
    /// In seconds since 1970.
    package let createdAt: Int64
    /// When the key expires, in seconds since 1970; nil if it never does.
    package let expiresAt: Int64?

    package init(name: String, scopes: Set<APIScope>, createdAt: Int64, expiresAt: Int64?) {
        self.name = name
        self.scopes = scopes
        self.createdAt = createdAt
        self.expiresAt = expiresAt
    }

    package func hasExpired(at unixTime: Int64) -> Bool { expiresAt.map { $0 <= unixTime } ?? false }

    /// The allowed names, as text after "allowed is".
    package static let allowedNames = "1 to 64 letters, digits, dots, - and _"

    /// Whether a text can be a key's name: it is written to logs as it is.
    package static func isName(_ text: String) -> Bool {
        (1...64).contains(text.utf8.count)
            && text.allSatisfy { $0.isASCII && ($0.isLetter || $0.isNumber || "-_.".contains($0)) }
    }
}

/// What the bearer of an API key may do.
package enum APIScope: String, CaseIterable, Sendable {
    /// Make, list and end sessions.
    case sessions
    case tokensRead = "tokens:read"
    case tokensWrite = "tokens:write"
    /// Erase users.
    case erase
}

/// All API keys, by the digests of their secrets.
package struct APIKeys: Sendable {
    /// The most keys in a file.
    package static let limit = 1_000

    /// A key with the SHA-256 digest of its secret.
    struct Entry: Hashable, Sendable {
        let key: APIKey
        let digest: [UInt8]
    }

    /// In the order of the file.
    private(set) var entries: [Entry] = []
    private var keysByDigest: [[UInt8]: APIKey] = [:]

    /// No keys.
    package init() {}

    /// In the order in which they were made.
    package var all: [APIKey] { entries.map(\.key) }

    /// The key of a name; nil if there is none.
    func key(named name: String) -> APIKey? { all.first { $0.name == name } }

    /// The names of the keys that differ from earlier ones; the name of a key that was replaced is in both lists.
    package func changes(since earlier: APIKeys) -> (added: [String], removed: [String]) {
        let (before, now) = (Set(earlier.entries), Set(entries))
        return (
            entries.filter { !before.contains($0) }.map(\.key.name),
            earlier.entries.filter { !now.contains($0) }.map(\.key.name)
        )
    }

    package enum Lookup: Hashable, Sendable {
        /// No key has this secret, or the text cannot be a secret.
        case unknown
        case expired
        case found(APIKey)
    }

    /// Finds the key whose secret a caller has shown.
    ///
    /// Its duration may tell how much of a digest matches, but this helps nobody to guess the secret.
    package func find(_ presented: Span<UInt8>, at unixTime: Int64) -> Lookup {
        guard let digest = APIKeySecret.digest(of: presented), let key = keysByDigest[digest] else {
            return .unknown
        }
        return key.hasExpired(at: unixTime) ? .expired : .found(key)
    }

    package enum AdditionError: String, Error {
        case nameExists = "an earlier key has the same name"
        case secretExists = "an earlier key has the same secret"
        case tooMany = "there are more than 1000 keys"
    }

    /// Adds a key with the digest of its secret.
    package mutating func add(_ key: APIKey, digest: [UInt8]) throws(AdditionError) {
        guard self.key(named: key.name) == nil else { throw .nameExists }
        guard keysByDigest[digest] == nil else { throw .secretExists }
        guard entries.count < Self.limit else { throw .tooMany }
        entries.append(Entry(key: key, digest: digest))
        keysByDigest[digest] = key
    }

    /// Removes the key of a name; returns it, or nil if there is none.
    package mutating func remove(named name: String) -> APIKey? {
        guard let index = entries.firstIndex(where: { $0.key.name == name }) else { return nil }
        let entry = entries.remove(at: index)
        keysByDigest[entry.digest] = nil
        return entry.key
    }
}

/// The secret text of a key: `tck_` and 43 characters of base64url, which stand for 256 random bits.
///
/// The prefix lets source-code scanners find keys that were committed by mistake.
package enum APIKeySecret {
    private static let prefix = "tck_"
    private static let byteCount = 32

    /// A new secret.
    package static func random() -> String {
        var bytes = RandomBytes.secret(byteCount)
        defer { SecretKey.wipe(&bytes) }
        return prefix + Base64URL.encode(bytes.span)
    }

    /// SHA-256 of a secret's text; nil if the text is no secret of a key.
    ///
    /// A fast hash is enough: nobody can try 2^256 secrets.
    package static func digest(of text: Span<UInt8>) -> [UInt8]? {
        let prefixCount = prefix.utf8.count
        guard text.count == prefixCount + Base64URL.length(of: byteCount),
            zip(0..., prefix.utf8).allSatisfy({ text[$0] == $1 }),
            Base64URL.decode(text.extracting(prefixCount..<text.count)) != nil
        else { return nil }
        return SHA256Digest.digest(of: text)
    }
}
