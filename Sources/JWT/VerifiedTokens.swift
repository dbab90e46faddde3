internal import Cryptography
internal import Glibc
package import Metrics

/// The tokens that were verified lately, each until it expires, so that a client's next request costs no verification.
///
/// Bounded in count and bytes; the token that was verified earliest makes room. A refused token is never remembered, so nobody
/// fills this without tokens of the issuer. A token is found by a hash of its last bytes, which are part of the signature, and
/// is then compared as a whole; the hash has a random key for each process. Other keys empty the memory. Tokens are overwritten
/// when they are removed.
///
/// Belongs to one loop's thread.
package final class VerifiedTokens {
    /// How often a token was remembered, and what is kept; written by the owner's thread, read by any.
    package final class Counts: Sendable {
        /// Tokens that were found.
        package let hits = Counter()
        /// Tokens that had to be verified, with whatever outcome.
        package let misses = Counter()
        /// Tokens that were removed before they expired, to make room.
        package let evictions = Counter()
        package let entries = Counter()
        package let bytes = Counter()

        package init() {}
    }

    private struct Entry {
        let hash: UInt64
        var token: [UInt8]
        let verified: VerifiedToken

        /// Bytes that the entry takes, those of the table and of the allocations included.
        var cost: Int { VerifiedTokens.cost(token.count, verified) }
    }

    private static func cost(_ length: Int, _ verified: VerifiedToken) -> Int {
        length + verified.user.count + (verified.thumbprint?.count ?? 0) + 224
    }

    private let countLimit: Int
    private let byteLimit: Int
    private let counts: Counts

    private var verifier: JWTVerifier
    /// Entries by age: that with the sequence number n lies at n modulo `countLimit`.
    private var entries: [Entry] = []
    /// The sequence numbers that are in use.
    private var sequence: Range<Int> = 0..<0
    /// Sequence numbers by hash.
    private var index: [UInt64: Int] = [:]
    private var bytes = 0

    /// - Parameters:
    ///   - verifier: Verifies what is not remembered.
    ///   - countLimit: How many tokens are kept.
    ///   - byteLimit: How many bytes they may take altogether.
    ///   - counts: Written by this object alone.
    package init(
        _ verifier: JWTVerifier, countLimit: Int = 4096, byteLimit: Int = 4 << 20, counts: Counts = Counts()
    ) {
        precondition(countLimit > 0, "a memory has room")
        self.verifier = verifier
        self.countLimit = countLimit
        self.byteLimit = byteLimit
        self.counts = counts
    }

    deinit { removeAll() }

    /// Verifies by another verifier from now on, and forgets what those before have accepted.
    package func use(_ verifier: JWTVerifier) {
        guard verifier !== self.verifier else { return }
        removeAll()
        self.verifier = verifier
    }

    /// Verifies a token as `JWTVerifier.verify` does, or finds that this was done before.
    ///
    /// - Parameters:
    ///   - token: The text of `Authorization: Bearer`, without white space.
    ///   - unixTime: Now, in seconds since 1970.
    ///   - certificateThumbprint: The SHA-256 of the connection's client certificate in DER; nil without one.
    package func verify(
        _ token: Span<UInt8>, at unixTime: Int64, certificateThumbprint: [UInt8]?
    ) throws(JWTRejection) -> VerifiedToken {
        let hash = Self.hash(of: token)
        if let found = find(token, hash) {
            counts.hits.add()
            // The clock and the connection's certificate differ from request to request.
            try found.check(at: unixTime, certificateThumbprint: certificateThumbprint)
            return found
        }
        counts.misses.add()
        let verified = try verifier.verify(token, at: unixTime, certificateThumbprint: certificateThumbprint)
        insert(token, hash, verified, at: unixTime)
        return verified
    }

    /// Forgets the tokens that have expired, up to the first one, in the order of their verification, that has not.
    func removeExpired(at unixTime: Int64) {
        while let first = sequence.first, entries[first % countLimit].verified.expiresAt <= unixTime { removeFirst() }
    }

    /// Forgets everything.
    func removeAll() {
        while !sequence.isEmpty { removeFirst() }
    }

    // MARK: - The table

    /// How much of a token's end is hashed: 18 bytes of the signature.
    ///
    /// The whole token would take longer than all the rest of a lookup. Whoever sends a token with the end of another one only
    /// has it compared in vain.
    private static let hashedLength = 24

    private static func hash(of token: Span<UInt8>) -> UInt64 {
        var hasher = Hasher()
        unsafe token.extracting(last: hashedLength).withUnsafeBytes { unsafe hasher.combine(bytes: $0) }
        return UInt64(bitPattern: Int64(hasher.finalize()))
    }

    private func find(_ token: Span<UInt8>, _ hash: UInt64) -> VerifiedToken? {
        guard let number = index[hash] else { return nil }
        let entry = entries[number % countLimit]
        return Self.areEqual(entry.token.span, token) ? entry.verified : nil
    }

    private static func areEqual(_ first: Span<UInt8>, _ second: Span<UInt8>) -> Bool {
        guard first.count == second.count else { return false }
        return unsafe first.withUnsafeBytes { first in
            unsafe second.withUnsafeBytes { second in
                // A null pointer, which memcmp(3) does not take, is that of no bytes.
                guard let first = first.baseAddress, let start = second.baseAddress else { return true }
                return unsafe memcmp(first, start, second.count) == 0
            }
        }
    }

    private func insert(_ token: Span<UInt8>, _ hash: UInt64, _ verified: VerifiedToken, at unixTime: Int64) {
        removeExpired(at: unixTime)
        let cost = Self.cost(token.count, verified)
        // One that is very large would evict too many others. Of two tokens with one hash, the first is kept.
        guard cost <= byteLimit / 8, index[hash] == nil else { return }
        while sequence.count == countLimit || bytes + cost > byteLimit {
            removeFirst()
            counts.evictions.add()
        }
        let number = sequence.upperBound
        let entry = Entry(hash: hash, token: token.bytes(token.indices), verified: verified)
        if entries.count < countLimit { entries.append(entry) } else { entries[number % countLimit] = entry }
        sequence = sequence.lowerBound..<number + 1
        index[hash] = number
        bytes += cost
        publish()
    }

    private func removeFirst() {
        let slot = sequence.lowerBound % countLimit
        bytes -= entries[slot].cost
        index[entries[slot].hash] = nil
        SecretKey.wipe(&entries[slot].token)
        entries[slot].token = []
        sequence = sequence.lowerBound + 1..<sequence.upperBound
        publish()
    }

    private func publish() {
        counts.entries.set(UInt64(sequence.count))
        counts.bytes.set(UInt64(bytes))
    }
}
