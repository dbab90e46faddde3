/// What a token has to be, beside being signed with a known key.
package struct JWTRules: Hashable, Sendable {
    /// The values of `iss` that are accepted, compared byte by byte.
    package let issuers: [String]
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
    ///   - issuers: At least one, each usable by `isUsable(issuer:)`.
    ///   - audiences: At least one.
    ///   - algorithms: At least one, the preferred ones first.
    ///   - types: At least one; case and a leading `application/` do not count. With `JWT`, tokens without `typ` are
    ///     accepted too.
    ///   - userClaim: Not empty.
    ///   - leeway: 0 to `leewayLimit`.
    package init(
        issuers: [String], audiences: [String], algorithms: [JWTAlgorithm], types: [String], userClaim: String,
        leeway: Int64
    ) {
        precondition(!issuers.isEmpty && issuers.allSatisfy(Self.isUsable(issuer:)), "tokens have a usable issuer")
        precondition(!audiences.isEmpty && !algorithms.isEmpty && !types.isEmpty, "something is accepted")
        precondition(!userClaim.isEmpty && (0...Self.leewayLimit).contains(leeway), "claim and leeway are usable")
        self.issuers = issuers
        self.audiences = audiences
        self.algorithms = algorithms
        self.types = types.map(Self.mediaType)
        self.userClaim = userClaim
        self.leeway = leeway
    }

    /// Whether an issuer can be part of a user's bytes: not empty, at most 512 bytes, and without space, `<` and control
    /// characters, as is every URI.
    package static func isUsable(issuer: String) -> Bool {
        (1...512).contains(issuer.utf8.count)
            && issuer.utf8.allSatisfy { $0 > 0x20 && $0 != UInt8(ascii: "<") && $0 != 0x7f }
    }

    /// A `typ` without what RFC 7515 (section 4.1.9) lets senders choose: case, and `application/` before a type.
    static func mediaType(_ type: String) -> String {
        let type = type.lowercased()
        let prefix = "application/"
        // A type with another slash needs its prefix.
        guard type.hasPrefix(prefix), !type.dropFirst(prefix.count).contains("/") else { return type }
        return String(type.dropFirst(prefix.count))
    }

    /// The user of a claim's value.
    ///
    /// With one issuer, the value itself. With several, the issuer, a space and the value: two issuers may give the same value
    /// to different people. As an issuer has no space, no two pairs make the same user.
    ///
    /// - Returns: At most `userLimit` bytes of UTF-8; nil for a value that is empty or too long, or that contains NUL or `<`,
    ///   which the removal of tags would change.
    func user(_ value: [UInt8], of issuer: [UInt8]) -> [UInt8]? {
        guard !value.isEmpty, !value.contains(0), !value.contains(UInt8(ascii: "<")) else { return nil }
        let user = issuers.count > 1 ? issuer + [0x20] + value : value
        return user.count <= Self.userLimit ? user : nil
    }

    /// Longest user in bytes, as for unique ids.
    package static let userLimit = 1024
}
