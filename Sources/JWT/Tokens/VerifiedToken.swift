/// What a token that was verified stands for.
package struct VerifiedToken: Hashable, Sendable {
    /// The user: UTF-8, 1 to `JWTRules.userLimit` bytes, without NUL and `<`.
    package let user: [UInt8]
    /// The first second in which the token counts; seconds since 1970, the leeway taken off.
    package let validFrom: Int64
    /// The first second in which the token does not count any more; seconds since 1970, the leeway added.
    package let expiresAt: Int64
    /// The SHA-256 of the client certificate that the token is bound to (RFC 8705, section 3.1); nil for a token that is not
    /// bound.
    package let thumbprint: [UInt8]?

    /// Whether the token counts at a time, on a connection with a certificate or without one.
    func check(at unixTime: Int64, certificateThumbprint: [UInt8]?) throws(JWTRejection) {
        guard unixTime < expiresAt else { throw .expired }
        guard unixTime >= validFrom else { throw .notYetValid }
        guard thumbprint == nil || thumbprint == certificateThumbprint else { throw .certificate }
    }
}
