import Cryptography
import Synchronization

/// Verifies the signed tokens of an issuer (JWS compact serialization, RFC 7515; RFC 7519), with RFC 8725 and RFC 9068
/// as the list of what to check.
///
/// A token counts only if its algorithm is one of its key's, and nothing of the claims is read before the signature was
/// verified.
/// Immutable; any thread, several at once. Most of a verification is OpenSSL's work on the signature: on the machine of the
/// benchmarks 15 µs for RSA with 2048 bits, 50 µs for ES256 and 75 µs for Ed25519, which `VerifiedTokens` saves.
package final class JWTVerifier: Sendable {
    let rules: JWTRules
    package let keys: JWTKeySet
    private let report: @Sendable (String) -> Void
    /// The keys and algorithms of refused tokens that were reported, few as the issuer must have signed one, and the last second
    /// in which a token was verified for that.
    private let reported = Mutex((names: Set<String>(), second: Int64.min))

    /// Longest token in bytes: those with many groups in them reach 12 KiB.
    package static let tokenLimit = 16 << 10

    /// - Parameters:
    ///   - rules: What is required of tokens.
    ///   - keys: Those of the issuer.
    ///   - report: Gets a sentence when the issuer signs with an algorithm that its key may not have; once for each.
    package init(rules: JWTRules, keys: JWTKeySet, report: @escaping @Sendable (String) -> Void = { _ in }) {
        precondition(!rules.issuer.isEmpty && !rules.audiences.isEmpty, "something is accepted")
        precondition(!rules.userClaim.isEmpty, "the claim has a name")
        self.rules = rules
        self.keys = keys
        self.report = report
    }

    /// Verifies a token.
    ///
    /// - Parameters:
    ///   - token: The text of `Authorization: Bearer`, without white space.
    ///   - unixTime: Now, in seconds since 1970.
    package func verify(_ token: Span<UInt8>, at unixTime: Int64) throws(JWTRejection) -> VerifiedToken {
        let parts = try Self.split(token)
        let headerText = try Self.decode(token, parts.header)
        let header = try JWTHeader(headerText.span)
        guard !parts.payload.isEmpty else { throw .malformed }
        let keys = try keys.keys(for: header.keyID)
        let payload = try Self.decode(token, parts.payload)
        let signature = try Self.decode(token, parts.signature)
        let signed = token.extracting(0..<parts.payload.upperBound)
        var rejection: JWTRejection? = .otherAlgorithm
        for key in keys where rejection != nil {
            let isAllowed = key.algorithms.contains(header.algorithm)
            if isAllowed {
                rejection = key.key.verify(signature.span, of: signed, header.algorithm) ? nil : .signature
                // The issuer's own signatures can only have a wrong salt.
                if rejection == nil || !header.algorithm.isPSS { continue }
            }
            let name = "(\(key.name)) has signed with \(header.algorithm.rawValue)"
            // Verified only to be reported, as anybody could write another algorithm into a token; so not each of them.
            let isDue = reported.withLock { reported in
                guard reported.second != unixTime, !reported.names.contains(name) else { return false }
                reported.second = unixTime
                return true
            }
            if isDue, key.key.verify(signature.span, of: signed, header.algorithm, anySalt: true),
                reported.withLock({ $0.names.insert(name).inserted })
            {
                report(
                    """
                    a token that a key of the issuer \(name) is refused: \
                    \(isAllowed
                        ? "its salt is not as long as the hash, as RFC 7518 (section 3.5) asks"
                        : "the key is only for \(key.algorithms.text), by its alg or its kind")
                    """)
            }
        }
        if let rejection { throw rejection }
        let verified = try JWTClaims(payload).token(rules)
        try verified.check(at: unixTime)
        return verified
    }

    private static func decode(_ token: Span<UInt8>, _ part: Range<Int>) throws(JWTRejection) -> [UInt8] {
        guard let bytes = Base64URL.decode(token.extracting(part)) else { throw .malformed }
        return bytes
    }

    /// The three parts between the dots.
    private static func split(
        _ token: Span<UInt8>
    ) throws(JWTRejection) -> (header: Range<Int>, payload: Range<Int>, signature: Range<Int>) {
        guard token.count <= tokenLimit else { throw .tooLong }
        var dots: [Int] = []
        for index in token.indices where token[index] == UInt8(ascii: ".") {
            dots.append(index)
            guard dots.count <= 2 else { throw .malformed }
        }
        guard dots.count == 2, dots[0] > 0 else { throw .malformed }
        return (0..<dots[0], dots[0] + 1..<dots[1], dots[1] + 1..<token.count)
    }
}

/// What a token that was verified stands for.
package struct VerifiedToken: Hashable, Sendable {
    /// The user: UTF-8, 1 to `JWTRules.userLimit` bytes, without NUL and `<`.
    package let user: [UInt8]
    /// The first second in which the token is valid; seconds since 1970, with the leeway subtracted.
    package let validFrom: Int64
    /// The first second in which the token is no longer valid; seconds since 1970, with the leeway added.
    package let expiresAt: Int64

    /// Throws unless the token is valid at a time.
    package func check(at unixTime: Int64) throws(JWTRejection) {
        guard unixTime < expiresAt else { throw .expired }
        guard unixTime >= validFrom else { throw .notYetValid }
    }
}

/// Why a token is refused, as a word for metrics; contains nothing of the token.
package enum JWTRejection: String, Error, Hashable, CaseIterable, Sendable {
    // Before the signature is verified.

    /// Longer than `JWTVerifier.tokenLimit`.
    case tooLong = "too_long"
    /// Not three parts, a part that is not strict base64url or not an object in JSON with each member once, no payload, a payload
    /// that is no claims (`cty`) or not encoded (RFC 7797), extensions that have to be understood (`crit`), or a JWE (RFC 7516).
    case malformed
    /// `alg` is not a known algorithm, or none.
    case unknownAlgorithm = "unknown_algorithm"
    /// `typ` is not an accepted one.
    case type
    /// No key has the token's `kid`.
    case unknownKey = "unknown_key"
    /// The token has no `kid`, and there are several keys.
    case missingKeyID = "missing_key_id"
    /// `alg` is not the algorithm of a key with the token's `kid`.
    case otherAlgorithm = "other_algorithm"

    case signature

    // After that: the issuer has signed a token that is not for this server or not usable now.

    /// A claim has the wrong JSON type, or a time is out of range.
    case claim
    case issuer
    case audience
    /// There is no `exp`.
    case missingExpiry = "missing_expiry"
    case expired
    /// `nbf` is in the future.
    case notYetValid = "not_yet_valid"
    /// The user's claim is missing.
    case missingUser = "missing_user"
    /// The user's claim is empty or too long, or contains NUL or `<`.
    case user
    /// The token is bound to a key or a certificate (`cnf`, RFC 7800), and nobody here checks that its sender has that.
    case boundToKey = "bound_to_key"
}
