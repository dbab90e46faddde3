/// What a token has to be, beside being signed with a known key.
package struct JWTRules: Hashable, Sendable {
    /// The value of `iss`, compared byte by byte.
    ///
    /// There is one only: the key set does not say which key is whose, so each of several issuers could sign tokens for the
    /// others' users (RFC 9068, section 4).
    package let issuer: String
    /// `aud` has to contain one of them.
    package let audiences: [String]
    /// The algorithms that keys may have; for an RSA key without `alg`, the first one of RSA counts.
    package let algorithms: [JWTAlgorithm]
    /// The media types that `typ` may name, without `application/` and in lower case.
    package let types: [String]
    /// The claim that names the user, for example `sub`.
    package let userClaim: String
    /// Seconds by which the issuer's clock may differ from this one.
    package let leeway: Int64

    /// Longest leeway, in seconds.
    package static let leewayLimit: Int64 = 300

    /// - Parameters:
    ///   - issuer: Not empty.
    ///   - audiences: At least one.
    ///   - algorithms: At least one, the preferred ones first.
    ///   - types: At least one; case and a leading `application/` do not count. With `JWT`, tokens without `typ` are
    ///     accepted too.
    ///   - userClaim: Not empty.
    ///   - leeway: 0 to `leewayLimit`.
    package init(
        issuer: String, audiences: [String], algorithms: [JWTAlgorithm], types: [String], userClaim: String,
        leeway: Int64
    ) {
        precondition(
            !issuer.isEmpty && !audiences.isEmpty && !algorithms.isEmpty && !types.isEmpty, "something is accepted")
        precondition(!userClaim.isEmpty && (0...Self.leewayLimit).contains(leeway), "claim and leeway are usable")
        self.issuer = issuer
        self.audiences = audiences
        self.algorithms = algorithms
        self.types = types.map(Self.mediaType)
        self.userClaim = userClaim
        self.leeway = leeway
    }

    /// A `typ` without what RFC 7515 (section 4.1.9) lets senders choose: case, and `application/` before a type.
    static func mediaType(_ type: String) -> String {
        let type = type.lowercased()
        let prefix = "application/"
        // A type with another slash needs its prefix.
        guard type.hasPrefix(prefix), !type.dropFirst(prefix.count).contains("/") else { return type }
        return String(type.dropFirst(prefix.count))
    }

    /// Longest user in bytes, as for unique ids.
    package static let userLimit = 1024
}
