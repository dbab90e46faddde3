import Cryptography

@testable import JWT

/// An issuer of tokens with a key of each kind, and a server that knows its keys.
enum Issuer {
    static let rsa = SigningKey(.rsa(bits: 2048))
    static let p256 = SigningKey(.ellipticCurve("P-256"))
    static let p384 = SigningKey(.ellipticCurve("P-384"))
    static let p521 = SigningKey(.ellipticCurve("P-521"))
    static let ed25519 = SigningKey(.ed25519)
    /// Not in the set.
    static let stranger = SigningKey(.ellipticCurve("P-256"))

    static let name = "https://id.example.com"
    /// The time at which tokens are verified.
    static let now: Int64 = 1_800_000_000
    static let leeway = JWTRules.leeway

    static let set = keySet([
        rsa.jwk(#","kid":"rsa","alg":"RS256""#), rsa.jwk(#","kid":"ps","alg":"PS256""#),
        p256.jwk(#","kid":"ec","use":"sig","alg":"ES256""#), p384.jwk(#","kid":"p384""#),
        p521.jwk(#","kid":"p521""#), ed25519.jwk(#","kid":"ed","key_ops":["verify"]"#),
    ])

    static func keySet(_ keys: [String]) -> String { #"{"keys":[\#(keys.joined(separator: ","))]}"# }

    static func rules(issuer: String = name, userClaim: String = "sub") -> JWTRules {
        JWTRules(issuer: issuer, audiences: ["api", "other-api"], userClaim: userClaim)
    }

    static func keys(_ text: String) throws -> JWTKeySet {
        try JWTKeySet(parsing: Array(text.utf8).span, of: "jwks")
    }

    static let verifier: JWTVerifier = {
        guard let keys = try? keys(set) else { preconditionFailure("the set is good") }
        return JWTVerifier(rules: rules(), keys: keys)
    }()

    /// A header of the EC key.
    static let header = #"{"alg":"ES256","typ":"at+jwt","kid":"ec"}"#

    /// Good claims, some of them replaced by other JSON or (nil) left out.
    static func claims(_ changes: [String: String?] = [:]) -> String {
        var members = [
            "iss": "\"\(name)\"", "aud": "\"api\"", "sub": "\"alice\"", "exp": "\(now + 300)", "iat": "\(now - 10)",
        ]
        for (name, value) in changes { members[name] = value }
        return "{" + members.sorted { $0.key < $1.key }.map { "\"\($0.key)\":\($0.value)" }.joined(separator: ",") + "}"
    }

    /// A signed token.
    static func token(
        _ header: String = header, _ claims: String = claims(), by key: SigningKey = p256, digest: String = "SHA256",
        isPSS: Bool = false, saltLength: Int32 = -1
    ) -> String {
        let signed = base64(header) + "." + base64(claims)
        return signed + "." + base64(key.sign(Array(signed.utf8), digest: digest, isPSS: isPSS, saltLength: saltLength))
    }
}

extension JWTVerifier {
    /// The outcome for a token's text.
    func outcome(
        _ token: String, at time: Int64 = Issuer.now
    ) -> Result<VerifiedToken, JWTRejection> {
        outcome(Array(token.utf8), at: time)
    }

    func outcome(
        _ token: [UInt8], at time: Int64 = Issuer.now
    ) -> Result<VerifiedToken, JWTRejection> {
        do throws(JWTRejection) {
            return .success(try verify(token.span, at: time))
        } catch {
            return .failure(error)
        }
    }

    /// Why a token is refused; nil if it is accepted.
    func rejection(
        _ token: String, at time: Int64 = Issuer.now
    ) -> JWTRejection? {
        guard case .failure(let rejection) = outcome(token, at: time) else { return nil }
        return rejection
    }
}

extension JWTKeySet {
    /// The algorithm of the key that tokens with a `kid`, or without one, are verified with; nil if there is none.
    func algorithm(for keyID: String?) -> JWTAlgorithm? {
        (try? keys(for: keyID.map { Array($0.utf8) }))?.first?.algorithms.first
    }

    /// The key of a set that has only one.
    var onlyKey: JWK? { (try? keys(for: nil))?.first }
}

extension JWK {
    /// Verifies a signature of the key's first algorithm.
    func verify(_ signature: Span<UInt8>, of signed: Span<UInt8>) -> Bool {
        key.verify(signature, of: signed, algorithms[0])
    }
}
