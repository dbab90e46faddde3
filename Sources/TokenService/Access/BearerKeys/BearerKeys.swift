package import Cryptography

/// All keys of a kind, by the digests of their secrets.
package struct BearerKeys<Scope: BearerKeyScope>: Sendable {
    /// The most keys in a file.
    package static var limit: Int { 1_000 }

    /// A key with the SHA-256 digest of its secret.
    struct Entry: Hashable, Sendable {
        let key: BearerKey<Scope>
        let digest: [UInt8]
    }

    /// In the order of the file.
    private(set) var entries: [Entry] = []
    private var keysByDigest: [[UInt8]: BearerKey<Scope>] = [:]

    /// No keys.
    package init() {}

    /// In the order in which they were made.
    package var all: [BearerKey<Scope>] { entries.map(\.key) }

    /// The key of a name; nil if there is none.
    package func key(named name: String) -> BearerKey<Scope>? { all.first { $0.name == name } }

    /// Which names differ from those of earlier keys; a name whose secret or scopes are others is in both lists.
    package func changes(since earlier: BearerKeys) -> (added: [String], removed: [String]) {
        let (before, now) = (Set(earlier.entries), Set(entries))
        return (
            entries.filter { !before.contains($0) }.map(\.key.name),
            earlier.entries.filter { !now.contains($0) }.map(\.key.name)
        )
    }

    package enum Lookup: Hashable, Sendable {
        /// No key has this secret, or the text cannot be one.
        case unknown
        case expired(BearerKey<Scope>)
        case found(BearerKey<Scope>)
    }

    /// Finds the key whose secret a caller has shown.
    ///
    /// The time that it takes may tell how much of a digest matches, from which nobody can guess more of the secret.
    package func find(_ presented: Span<UInt8>, at unixTime: Int64) throws(CryptographyError) -> Lookup {
        guard let digest = try BearerKeySecret<Scope>.digest(of: presented), let key = keysByDigest[digest] else {
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
    package mutating func add(_ key: BearerKey<Scope>, digest: [UInt8]) throws(AdditionError) {
        guard self.key(named: key.name) == nil else { throw .nameExists }
        guard keysByDigest[digest] == nil else { throw .secretExists }
        guard entries.count < Self.limit else { throw .tooMany }
        entries.append(Entry(key: key, digest: digest))
        keysByDigest[digest] = key
    }

    /// Removes the key of a name; returns it, or nil if there is none.
    package mutating func remove(named name: String) -> BearerKey<Scope>? {
        guard let index = entries.firstIndex(where: { $0.key.name == name }) else { return nil }
        let entry = entries.remove(at: index)
        keysByDigest[entry.digest] = nil
        return entry.key
    }
}
