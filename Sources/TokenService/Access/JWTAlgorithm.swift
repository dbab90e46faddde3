/// A signature algorithm of JWTs that can be accepted, by its name in RFC 7518 or RFC 8037.
package enum JWTAlgorithm: String, Sendable, CaseIterable {
    case rs256 = "RS256"
    case es256 = "ES256"
    case edDSA = "EdDSA"
}
