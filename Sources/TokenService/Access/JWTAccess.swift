package import JWT

/// Verifies JWTs by the keys of the moment, and remembers the valid ones.
///
/// Belongs to one loop's thread.
package final class JWTAccess: TokenVerifier {
    /// Shared by all loops.
    private let keys: JWTKeyFile
    private let tokens: VerifiedTokens
    private let note: (JWTRejection) -> Void

    /// - Parameters:
    ///   - keys: The issuer's keys.
    ///   - tokens: The loop's memory.
    ///   - note: Counts each token that is not accepted.
    package init(_ keys: JWTKeyFile, _ tokens: VerifiedTokens, note: @escaping (JWTRejection) -> Void) {
        self.keys = keys
        self.tokens = tokens
        self.note = note
    }

    package func user(
        of token: Span<UInt8>, at unixTime: Int64, certificateThumbprint: [UInt8]?
    ) throws(AccessFailure) -> [UInt8] {
        do throws(JWTRejection) {
            let verified = try tokens.verify(
                token, by: keys.verifier, at: unixTime, certificateThumbprint: certificateThumbprint)
            return verified.user
        } catch {
            note(error)
            throw error == .expired ? .expired : .invalidToken
        }
    }
}
