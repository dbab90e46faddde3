import Cryptography
import HTTP
package import JWT
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
    private struct Entry: RecentEntry {
        var token: [UInt8]
        let verified: VerifiedToken

        mutating func wipe() { SecretKey.wipe(&token) }
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
        let known = entries.find(hash) { entry in
            let known = entry.token
            return ConstantTime.areEqual(known.span, token) ? entry.verified : nil
        }
        if let known {
            try known.check(at: unixTime)
            return known
        }
        let verified = try verifier.verify(token, at: unixTime)
        // The cost includes its place in the table and the allocations.
        entries.insert(under: hash, cost: token.count + verified.user.count + 300) {
            Entry(token: [UInt8](ByteRange(0, token.count), in: token), verified: verified)
        }
        return verified
    }

    /// How much of a token's end is hashed: 18 bytes of the signature.
    ///
    /// To hash the whole token would take longer than all the rest of a lookup. A token with the same end as another one is only
    /// compared in vain.
    private static let hashedLength = 24
}
