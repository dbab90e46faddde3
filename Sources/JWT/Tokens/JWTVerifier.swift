internal import Cryptography

/// Verifies the signed tokens of an issuer (JWS compact serialization, RFC 7515; RFC 7519), with RFC 8725 and RFC 9068
/// as the list of what to check.
///
/// Each key has one algorithm, and a token of another one is never verified with it. Nothing of the claims is read before the signature was verified.
/// Immutable; any thread, several at once. Most of a verification is OpenSSL's work on the signature: on the machine of the
/// benchmarks 15 µs for RSA with 2048 bits, 50 µs for ES256 and 75 µs for Ed25519, which `VerifiedTokens` saves.
package final class JWTVerifier: Sendable {
    package let rules: JWTRules
    package let keys: JWTKeySet

    /// Longest token in bytes: those with many groups in them reach 12 KiB.
    package static let tokenLimit = 16 << 10

    /// - Parameters:
    ///   - rules: What the claims have to be.
    ///   - keys: Read with the algorithms of the rules.
    package init(rules: JWTRules, keys: JWTKeySet) {
        self.rules = rules
        self.keys = keys
    }

    /// Verifies a token.
    ///
    /// - Parameters:
    ///   - token: The text of `Authorization: Bearer`, without white space.
    ///   - unixTime: Now, in seconds since 1970.
    ///   - certificateThumbprint: The SHA-256 of the connection's client certificate in DER; nil without one.
    package func verify(
        _ token: Span<UInt8>, at unixTime: Int64, certificateThumbprint: [UInt8]?
    ) throws(JWTRejection) -> VerifiedToken {
        let parts = try Self.split(token)
        let headerText = try Self.decode(token, parts.header)
        let header = try JWTHeader(headerText.span, types: rules.types)
        guard !parts.payload.isEmpty else { throw .detached }
        guard !parts.signature.isEmpty else { throw .unsigned }
        let key = try keys.key(for: header.keyID, header.algorithm)
        let payload = try Self.decode(token, parts.payload)
        let signature = try Self.decode(token, parts.signature)
        guard key.verify(signature.span, of: token.extracting(0..<parts.payload.upperBound)) else { throw .signature }
        let verified = try JWTClaims(payload).token(rules)
        try verified.check(at: unixTime, certificateThumbprint: certificateThumbprint)
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
            guard dots.count <= 4 else { throw .malformed }
        }
        // RFC 7516, section 9: five parts are a JWE.
        guard dots.count != 4 else { throw .encrypted }
        guard dots.count == 2, dots[0] > 0 else { throw .malformed }
        return (0..<dots[0], dots[0] + 1..<dots[1], dots[1] + 1..<token.count)
    }
}
