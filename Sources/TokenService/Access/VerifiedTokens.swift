internal import Cryptography
internal import HTTP
package import JWT
internal import Synchronization
package import System

/// The file with the issuer's keys (a JWK set), and the tokens that were verified with them.
package typealias JWTKeyFile = WatchedFiles<String, VerifiedTokens, KeyFileError>

/// The JWTs that were verified recently with one set of keys, so that a client's next request costs no verification.
///
/// A refused token is never remembered, so nobody can fill this without tokens of the issuer. A token is found by a hash of its
/// last bytes, which are part of the signature, and is then compared as a whole; the hash has a random key for each process. Tokens
/// are overwritten when they are removed. When the issuer's keys change, another object takes the place of this one.
///
/// Any thread.
package final class VerifiedTokens: Sendable {
    private final class Entry: Sendable {
        /// In a mutex, because `deinit` overwrites it.
        private let token: Mutex<[UInt8]>
        let verified: VerifiedToken

        init(_ token: [UInt8], _ verified: VerifiedToken) {
            self.token = Mutex(token)
            self.verified = verified
        }

        deinit { token.withLock { SecretKey.wipe(&$0) } }

        func isOf(_ token: Span<UInt8>) -> Bool { self.token.withLock { ConstantTime.areEqual($0.span, token) } }
    }

    /// Verifies what is not remembered.
    package let verifier: JWTVerifier
    private let entries: RecentTable<Entry>

    /// - Parameters:
    ///   - verifier: Has the keys.
    ///   - limit: How many bytes the tokens may take.
    package init(_ verifier: JWTVerifier, limit: Int = 16 << 20) {
        self.verifier = verifier
        entries = RecentTable(limit: limit)
    }

    package var counts: CacheCounts { entries.counts }

    /// Verifies a token as `JWTVerifier.verify` does, or finds that this was done before.
    ///
    /// - Parameters:
    ///   - token: The text of `Authorization: Bearer`, without white space.
    ///   - unixTime: Now, in seconds since 1970.
    package func verify(_ token: Span<UInt8>, at unixTime: Int64) throws(JWTRejection) -> VerifiedToken {
        let hash = token.extracting(last: Self.hashedLength).seededHash
        if let entry = entries.find(hash), entry.isOf(token) {
            try entry.verified.check(at: unixTime)
            return entry.verified
        }
        let verified = try verifier.verify(token, at: unixTime)
        let entry = Entry([UInt8](ByteRange(0, token.count), in: token), verified)
        // This includes its place in the table and the allocations.
        entries.insert(entry, under: hash, cost: token.count + verified.user.count + 300)
        return verified
    }

    /// How much of a token's end is hashed: 18 bytes of the signature.
    ///
    /// To hash the whole token would take longer than all the rest of a lookup. A token with the same end as another one is only
    /// compared in vain.
    private static let hashedLength = 24
}
