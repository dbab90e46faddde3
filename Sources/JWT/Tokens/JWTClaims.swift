internal import Cryptography

/// Judges the claims of a token whose signature was verified (RFC 7519, section 4.1).
package struct JWTClaims {
    private static let memberLimit = 256
    private static let audienceLimit = 64

    private let text: [UInt8]
    private let members: JSONObject

    /// - Parameter text: The decoded payload.
    package init(_ text: [UInt8]) throws(JWTRejection) {
        members = try JSONObject(ofToken: text.span, memberLimit: Self.memberLimit)
        self.text = text
    }

    /// The token by its claims; whether it counts now is still to be checked.
    package func token(_ rules: JWTRules) throws(JWTRejection) -> VerifiedToken {
        guard let issuer = try string("iss"), rules.issuer.utf8.elementsEqual(issuer) else { throw .issuer }
        try checkAudience(rules)
        guard let expiry = try time("exp") else { throw .missingExpiry }
        // `iat` only says how old a token is (RFC 7519, section 4.1.6).
        let start = try time("nbf")?.ceiling ?? 0
        let thumbprint = try certificateThumbprint()
        return VerifiedToken(
            user: try user(rules), validFrom: start - rules.leeway, expiresAt: expiry.floor + rules.leeway,
            thumbprint: thumbprint
        )
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
        // The removal of tags would change a user with `<`.
        guard 1...JWTRules.userLimit ~= user.count, !user.contains(0), !user.contains(UInt8(ascii: "<")) else {
            throw .user
        }
        return user
    }

    /// The certificate that the token is bound to (RFC 8705, section 3.1); nil for a token that is not bound.
    private func certificateThumbprint() throws(JWTRejection) -> [UInt8]? {
        guard let confirmation = members["cnf"] else { return nil }
        guard case .object(let range) = confirmation else { throw .claim }
        let methods: JSONObject
        do throws(JSONObject.Failure) {
            methods = try JSONObject(text.span, range, memberLimit: Self.memberLimit)
        } catch {
            throw error == .repeatedMember ? .repeatedMember : .claim
        }
        // Another method beside it would have to be verified too.
        guard methods.names.count == 1, let method = methods["x5t#S256"] else { throw .boundToKey }
        guard case .string(let encoded) = method, let thumbprint = Base64URL.decode(encoded.span),
            thumbprint.count == Self.thumbprintLength
        else { throw .claim }
        return thumbprint
    }

    /// Bytes of a SHA-256 hash.
    private static let thumbprintLength = 32

    private func string(_ name: String) throws(JWTRejection) -> [UInt8]? {
        switch members[name] {
        case nil: return nil
        case .string(let value): return value
        default: throw .claim
        }
    }

    private func time(_ name: String) throws(JWTRejection) -> NumericDate? {
        switch members[name] {
        case nil: return nil
        case .number(let number):
            guard let time = NumericDate(number) else { throw .claim }
            return time
        default: throw .claim
        }
    }
}
