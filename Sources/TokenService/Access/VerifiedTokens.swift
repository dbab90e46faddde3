internal import Cryptography
internal import HTTP
package import JWT
package import Metrics

/// The JWTs that were verified recently, so that a client's next request costs no verification.
///
/// A refused token is never remembered, so nobody can fill this without tokens of the issuer. A token is found by a hash of its
/// last bytes, which are part of the signature, and is then compared as a whole; the hash has a random key for each process. When
/// the issuer's keys change, all tokens are forgotten. Tokens are overwritten when they are removed.
///
/// Belongs to one loop's thread.
package final class VerifiedTokens {
    /// How often a token was remembered, and what is kept; written by the owner's thread, read by any.
    package final class Counts: Sendable {
        /// Tokens that were found.
        package let hits = Counter()
        /// Tokens that had to be verified, with whatever outcome.
        package let misses = Counter()
        /// Bytes that the tokens take at the moment.
        package let bytes = Counter()

        package init() {}
    }

    private final class Entry {
        var token: [UInt8]
        let verified: VerifiedToken

        init(_ token: [UInt8], _ verified: VerifiedToken) { (self.token, self.verified) = (token, verified) }

        deinit { SecretKey.wipe(&token) }

        /// Bytes that the entry takes, those of the table and of the allocations included.
        var cost: Int { token.count + verified.user.count + 300 }
    }

    private let counts: Counts
    private var verifier: JWTVerifier
    private var entries: RecentEntries<UInt64, Entry>

    /// - Parameters:
    ///   - verifier: Verifies what is not remembered.
    ///   - limit: How many bytes the tokens may take.
    ///   - counts: Written by this object alone.
    package init(_ verifier: JWTVerifier, limit: Int = 4 << 20, counts: Counts = Counts()) {
        self.verifier = verifier
        self.counts = counts
        entries = RecentEntries(limit: limit)
    }

    /// Uses another verifier from now on, and forgets the tokens that the former one accepted.
    package func use(_ verifier: JWTVerifier) {
        guard verifier !== self.verifier else { return }
        entries = RecentEntries(limit: entries.limit)
        counts.bytes.set(0)
        self.verifier = verifier
    }

    /// Verifies a token as `JWTVerifier.verify` does, or finds that this was done before.
    ///
    /// - Parameters:
    ///   - token: The text of `Authorization: Bearer`, without white space.
    ///   - unixTime: Now, in seconds since 1970.
    package func verify(_ token: Span<UInt8>, at unixTime: Int64) throws(JWTRejection) -> VerifiedToken {
        let hash = token.extracting(last: Self.hashedLength).seededHash
        if let entry = entries.find(hash), ConstantTime.areEqual(entry.token.span, token) {
            counts.hits.add()
            // An old entry that became young may have had others dropped.
            counts.bytes.set(UInt64(entries.bytes))
            try entry.verified.check(at: unixTime)
            return entry.verified
        }
        counts.misses.add()
        let verified = try verifier.verify(token, at: unixTime)
        let entry = Entry([UInt8](ByteRange(0, token.count), in: token), verified)
        entries.insert(entry, under: hash, cost: entry.cost)
        counts.bytes.set(UInt64(entries.bytes))
        return verified
    }

    /// How much of a token's end is hashed: 18 bytes of the signature.
    ///
    /// To hash the whole token would take longer than all the rest of a lookup. A token with the same end as another one is only
    /// compared in vain.
    private static let hashedLength = 24
}

/// What was used recently, within a limit of bytes.
///
/// Entries are young or old. When there are too many young ones, they become the old ones, and the former old ones are dropped. An
/// old entry that is found becomes young again.
struct RecentEntries<Key: Hashable, Entry> {
    /// In bytes; with 0 nothing is kept.
    let limit: Int
    private var young: [Key: (entry: Entry, cost: Int)] = [:]
    private var old: [Key: (entry: Entry, cost: Int)] = [:]
    private var youngBytes = 0
    private var oldBytes = 0
    /// Keys that were found, and that were not.
    private(set) var (hits, misses) = (0, 0)

    init(limit: Int) {
        self.limit = limit
    }

    var count: Int { young.count + old.count }
    var bytes: Int { youngBytes + oldBytes }

    mutating func find(_ key: Key) -> Entry? {
        hits += 1
        if let found = young[key] { return found.entry }
        guard let found = old.removeValue(forKey: key) else {
            (hits, misses) = (hits - 1, misses + 1)
            return nil
        }
        oldBytes -= found.cost
        insert(found.entry, under: key, cost: found.cost)
        return found.entry
    }

    /// Keeps an entry, which replaces one with the same key.
    mutating func insert(_ entry: Entry, under key: Key, cost: Int) {
        // A large one would take the place of too many others.
        guard cost <= limit / 8 else { return }
        if youngBytes + cost > limit / 2 {
            (old, oldBytes) = (young, youngBytes)
            (young, youngBytes) = ([:], 0)
        }
        if let former = young.updateValue((entry, cost), forKey: key) { youngBytes -= former.cost }
        youngBytes += cost
    }
}
