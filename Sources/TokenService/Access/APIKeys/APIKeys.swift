package import Cryptography

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
    package func key(named name: String) -> APIKey? { all.first { $0.name == name } }

    package enum Lookup: Hashable, Sendable {
        /// No key has this secret, or the text cannot be one.
        case unknown
        case expired(APIKey)
        case found(APIKey)
    }

    /// Finds the key whose secret a caller has shown.
    ///
    /// The time that it takes may tell how much of a digest matches, from which nobody can guess more of the secret.
    package func find(_ presented: Span<UInt8>, at unixTime: Int64) throws(CryptographyError) -> Lookup {
        guard let digest = try APIKeySecret.digest(of: presented), let key = keysByDigest[digest] else {
            return .unknown
        }
        return key.hasExpired(at: unixTime) ? .expired(key) : .found(key)
    }

    package enum AdditionError: Error, Hashable {
        case nameExists
        case secretExists
        case tooMany
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
