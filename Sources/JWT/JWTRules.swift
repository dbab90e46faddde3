import JSON

/// What is required of a token, beside a signature with a known key.
package struct JWTRules: Hashable, Sendable {
    /// The value of `iss`, compared byte by byte; not empty when a token is verified.
    ///
    /// There is only one: the key set does not say to which issuer a key belongs, so each of several issuers could sign tokens
    /// for the others' users (RFC 9068, section 4).
    package var issuer: String
    /// `aud` has to contain one of them; at least one when a token is verified.
    package var audiences: [String]
    /// The claim that names the user; not empty.
    package var userClaim: String

    /// Seconds by which the issuer's clock may differ from this one.
    package static let leeway: Int64 = 30

    package init(issuer: String = "", audiences: [String] = [], userClaim: String = "sub") {
        (self.issuer, self.audiences, self.userClaim) = (issuer, audiences, userClaim)
    }

    /// Longest user in bytes, as for unique ids.
    package static let userLimit = 1024
}

/// What a token's header says about its signature (RFC 7515, section 4).
///
/// Parameters that would name or hold a key (`jwk`, `jku`, `x5c`, `x5u`, `x5t`) are never looked at: keys come from the key
/// set alone (RFC 8725, section 3.10).
package struct JWTHeader {
    package let algorithm: JWTAlgorithm
    package let keyID: [UInt8]?

    private static let memberLimit = 32

    /// - Parameter text: The decoded header.
    package init(_ text: Span<UInt8>) throws(JWTRejection) {
        guard let members = JSONObject(text, memberLimit: Self.memberLimit) else { throw .malformed }
        guard case .string(let name) = members["alg"] else { throw .malformed }
        // Only a JWE has `enc` (RFC 7516, section 9). No extension is understood, so each makes the token invalid (RFC 7515, section
        // 4.1.11). Claims need no content type; a nested token has JWT (RFC 7519, section 5.2).
        guard !["enc", "crit", "b64", "cty"].contains(where: members.has) else { throw .malformed }
        guard let algorithm = JWTAlgorithm(name: name) else { throw .unknownAlgorithm }
        self.algorithm = algorithm
        try Self.checkType(members["typ"])
        switch members["kid"] {
        case nil: keyID = nil
        case .string(let value): keyID = value
        default: throw .malformed
        }
    }

    /// Refuses tokens that were made for another purpose (RFC 8725, section 3.11).
    ///
    /// The type may be that of access tokens (RFC 9068), JWT, or missing, as RFC 7519 (section 5.1) allows. Case and a leading
    /// `application/` do not count (RFC 7515, section 4.1.9).
    private static func checkType(_ type: JSONObject.Value?) throws(JWTRejection) {
        switch type {
        case nil: break
        case .string(let value):
            guard types.contains(String(decoding: value, as: UTF8.self).lowercased()) else { throw .type }
        default: throw .malformed
        }
    }

    private static let types = ["at+jwt", "jwt", "application/at+jwt", "application/jwt"]
}

/// Judges the claims of a token whose signature was verified (RFC 7519, section 4.1).
package struct JWTClaims {
    private static let memberLimit = 256
    private static let audienceLimit = 64

    private let text: [UInt8]
    private let members: JSONObject

    /// - Parameter text: The decoded payload.
    package init(_ text: [UInt8]) throws(JWTRejection) {
        guard let members = JSONObject(text.span, memberLimit: Self.memberLimit) else { throw .malformed }
        (self.members, self.text) = (members, text)
    }

    /// What the token stands for; `VerifiedToken.check` then tells whether it is valid now.
    package func token(_ rules: JWTRules) throws(JWTRejection) -> VerifiedToken {
        guard let issuer = try string("iss"), rules.issuer.utf8.elementsEqual(issuer) else { throw .issuer }
        try checkAudience(rules)
        guard let expiry = try time("exp") else { throw .missingExpiry }
        // `iat` only says how old a token is (RFC 7519, section 4.1.6).
        let start = try time("nbf").map { Int64($0.rounded(.up)) } ?? 0
        guard !members.has("cnf") else { throw .boundToKey }
        return VerifiedToken(
            user: try user(rules), validFrom: start - JWTRules.leeway,
            expiresAt: Int64(expiry.rounded(.down)) + JWTRules.leeway)
    }

    /// RFC 7519, section 4.1.3: one string or an array of strings.
    private func checkAudience(_ rules: JWTRules) throws(JWTRejection) {
        let audiences: [[UInt8]]
        switch members["aud"] {
        case nil: throw .audience
        case .string(let audience): audiences = [audience]
        case .array(let range):
            guard let strings = JSONObject.strings(text.span, range, limit: Self.audienceLimit) else { throw .claim }
            audiences = strings
        default: throw .claim
        }
        let isContained = rules.audiences.contains { audience in
            audiences.contains { $0.elementsEqual(audience.utf8) }
        }
        guard isContained else { throw .audience }
    }

    private func user(_ rules: JWTRules) throws(JWTRejection) -> [UInt8] {
        guard let user = try string(rules.userClaim) else { throw .missingUser }
        // Tag removal would change a user with `<`.
        guard 1...JWTRules.userLimit ~= user.count, !user.contains(0), !user.contains(UInt8(ascii: "<")) else {
            throw .user
        }
        return user
    }

    private func string(_ name: String) throws(JWTRejection) -> [UInt8]? {
        switch members[name] {
        case nil: return nil
        case .string(let value): return value
        default: throw .claim
        }
    }

    /// Seconds since 1970, with or without decimals (RFC 7519, section 2).
    private func time(_ name: String) throws(JWTRejection) -> Double? {
        switch members[name] {
        case nil: return nil
        case .number(let number):
            // The limit is enough for 31,000 years, and refuses milliseconds.
            guard let time = Double(String(decoding: number, as: UTF8.self)), abs(time) < 1e12 else { throw .claim }
            return time
        default: throw .claim
        }
    }
}
