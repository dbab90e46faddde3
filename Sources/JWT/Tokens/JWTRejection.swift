/// Why a token is refused, in a word for metrics; has nothing of the token.
package enum JWTRejection: String, Error, Hashable, CaseIterable, Sendable {
    // Before the signature is verified.

    /// Longer than `JWTVerifier.tokenLimit`.
    case tooLong = "too_long"
    /// Not three parts, or a part is not strict base64url or not an object in JSON.
    case malformed
    /// The header or the claims have a member twice.
    case repeatedMember = "repeated_member"
    /// A JWE (RFC 7516).
    case encrypted
    /// There is no payload, or it stands in the token without being encoded (RFC 7797).
    case detached
    /// The payload is another token, or something else than claims (`cty`).
    case nested
    /// `alg` is none, in whatever case, or there is no signature.
    case unsigned
    /// Extensions that have to be understood (`crit`).
    case critical
    /// `alg` is not a known algorithm.
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

    /// A claim has another JSON type than it must have, or a time that is none.
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
    /// The token is bound to a key (`cnf`) by another method than a client certificate.
    case boundToKey = "bound_to_key"
    /// The token is bound to another client certificate (RFC 8705), or the connection has none.
    case certificate
}
