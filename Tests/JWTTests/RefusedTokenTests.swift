import Testing

@testable import JWT

/// Each rule with tokens that break it, and nothing else about them.
struct RefusedTokenTests {
    struct Case: Sendable, CustomTestStringConvertible {
        let name: String
        let rejection: JWTRejection
        let token: String

        init(_ name: String, _ rejection: JWTRejection, _ token: String) {
            (self.name, self.rejection, self.token) = (name, rejection, token)
        }

        var testDescription: String { "\(rejection.rawValue): \(name)" }
    }

    /// A token that is properly signed, with another header.
    private static func header(_ name: String, _ rejection: JWTRejection, _ header: String) -> Case {
        Case(name, rejection, Issuer.token(header))
    }

    /// A token that is properly signed, with other claims.
    private static func claims(_ name: String, _ rejection: JWTRejection, _ changes: [String: String?]) -> Case {
        Case(name, rejection, Issuer.token(Issuer.header, Issuer.claims(changes)))
    }

    private static let good = Issuer.token()
    private static let parts = good.split(separator: ".").map(String.init)
    /// The shortest token with a claim as padding that has at least this many bytes.
    private static func padded(to length: Int) -> String {
        var pad = length * 3 / 4 - 300
        while true {
            let token = Issuer.token(
                Issuer.header, Issuer.claims(["pad": "\"" + String(repeating: "p", count: pad) + "\""]))
            if token.utf8.count >= length { return token }
            pad += 1
        }
    }

    static let shapes = [
        Case("empty", .malformed, ""),
        Case("a word", .malformed, "token"),
        Case("one dot", .malformed, parts[0] + "." + parts[1]),
        Case("three dots", .malformed, good + "."),
        Case("six parts", .malformed, "a.b.c.d.e.f"),
        Case("no header", .malformed, "." + parts[1] + "." + parts[2]),
        Case("a JWE of five parts", .malformed, parts[0] + ".a.b.c.d"),
        Case("a JWE with empty parts", .malformed, "...."),
        Case("a JWE's header", .malformed, Issuer.token(#"{"alg":"RSA-OAEP","enc":"A256GCM","kid":"rsa"}"#)),
        Case("no payload", .malformed, parts[0] + ".." + parts[2]),
        Case("no signature", .signature, parts[0] + "." + parts[1] + "."),
        Case("JSON serialization", .malformed, #"{"payload":"a","protected":"b","signature":"c"}"#),
        Case("longer than 16 KiB", .tooLong, padded(to: 16_385)),
        Case("white space before", .malformed, " " + good),
        Case("white space behind", .malformed, good + " "),
        Case("a line break inside", .malformed, parts[0] + "." + parts[1] + ".\r\n" + parts[2]),
        Case("padding", .malformed, good + "=="),
        Case("padding of the header", .malformed, parts[0] + "=." + parts[1] + "." + parts[2]),
        Case("the alphabet with + and /", .malformed, parts[0] + "." + parts[1] + "." + "+/" + parts[2].dropFirst(2)),
        Case("a quoted token", .malformed, "\"" + good + "\""),
        Case("a percent-encoded dot", .malformed, parts[0] + "%2E" + parts[1] + "." + parts[2]),
        Case("NUL at the end", .malformed, good + "\0"),
    ]

    static let headers = [
        header("not JSON", .malformed, "alg"),
        header("an array", .malformed, #"["ES256"]"#),
        header("a string", .malformed, #""ES256""#),
        header("cut off", .malformed, #"{"alg":"ES256""#),
        header("two objects", .malformed, Issuer.header + "{}"),
        header("a byte order mark", .malformed, "\u{feff}" + Issuer.header),
        header("a comment", .malformed, #"{"alg":"ES256",/**/"kid":"ec"}"#),
        header(
            "nested too deeply", .malformed,
            #"{"alg":"ES256","kid":"ec","x":"# + String(repeating: "[", count: 90) + String(repeating: "]", count: 90)
                + "}"),
        header(
            "33 members", .malformed,
            "{" + (0..<31).map { "\"m\($0)\":0," }.joined() + #""alg":"ES256","kid":"ec"}"#),
        header("alg twice", .malformed, #"{"alg":"ES256","kid":"ec","alg":"ES256"}"#),
        header("alg twice, once escaped", .malformed, #"{"alg":"ES256","kid":"ec","\u0061lg":"none"}"#),
        header("an unknown member twice", .malformed, #"{"alg":"ES256","kid":"ec","x":1,"x":2}"#),
        header("no alg", .malformed, #"{"kid":"ec"}"#),
        header("alg null", .malformed, #"{"alg":null,"kid":"ec"}"#),
        header("alg in an array", .malformed, #"{"alg":["ES256"],"kid":"ec"}"#),
        header("alg none", .unknownAlgorithm, #"{"alg":"none","kid":"ec"}"#),
        header("alg None", .unknownAlgorithm, #"{"alg":"None","kid":"ec"}"#),
        header("alg NONE", .unknownAlgorithm, #"{"alg":"NONE","kid":"ec"}"#),
        header("alg nOnE", .unknownAlgorithm, #"{"alg":"nOnE","kid":"ec"}"#),
        header("alg none with a space", .unknownAlgorithm, #"{"alg":"none ","kid":"ec"}"#),
        header("alg empty", .unknownAlgorithm, #"{"alg":"","kid":"ec"}"#),
        header("alg in lower case", .unknownAlgorithm, #"{"alg":"es256","kid":"ec"}"#),
        header("HS256", .unknownAlgorithm, #"{"alg":"HS256","kid":"ec"}"#),
        header("ES256K", .unknownAlgorithm, #"{"alg":"ES256K","kid":"ec"}"#),
        header("Ed448", .unknownAlgorithm, #"{"alg":"Ed448","kid":"ed"}"#),
        header("another curve's algorithm", .otherAlgorithm, #"{"alg":"ES384","kid":"ec"}"#),
        header("RSA's algorithm for an EC key", .otherAlgorithm, #"{"alg":"RS256","kid":"ec"}"#),
        header("PSS for a key of PKCS #1", .otherAlgorithm, #"{"alg":"PS256","kid":"rsa"}"#),
        header("PKCS #1 for a key of PSS", .otherAlgorithm, #"{"alg":"RS256","kid":"ps"}"#),
        header("another digest for the key", .otherAlgorithm, #"{"alg":"PS512","kid":"ps"}"#),
        header("EdDSA for an EC key", .otherAlgorithm, #"{"alg":"EdDSA","kid":"ec"}"#),
        header("crit", .malformed, #"{"alg":"ES256","kid":"ec","crit":["exp"],"exp":1}"#),
        header("crit empty", .malformed, #"{"alg":"ES256","kid":"ec","crit":[]}"#),
        header("crit with b64", .malformed, #"{"alg":"ES256","kid":"ec","crit":["b64"],"b64":false}"#),
        header("b64 false", .malformed, #"{"alg":"ES256","kid":"ec","b64":false}"#),
        header("b64 true", .malformed, #"{"alg":"ES256","kid":"ec","b64":true}"#),
        header("cty JWT", .malformed, #"{"alg":"ES256","kid":"ec","cty":"JWT"}"#),
        header("cty application/jwt", .malformed, #"{"alg":"ES256","kid":"ec","cty":"application/jwt"}"#),
        header("cty of something else", .malformed, #"{"alg":"ES256","kid":"ec","cty":"text/plain"}"#),
        header("an ID token's logout", .type, #"{"alg":"ES256","kid":"ec","typ":"logout+jwt"}"#),
        header("DPoP", .type, #"{"alg":"ES256","kid":"ec","typ":"dpop+jwt"}"#),
        header("typ empty", .type, #"{"alg":"ES256","kid":"ec","typ":""}"#),
        header("typ of another tree", .type, #"{"alg":"ES256","kid":"ec","typ":"text/jwt"}"#),
        header("typ application/x/jwt", .type, #"{"alg":"ES256","kid":"ec","typ":"application/x/jwt"}"#),
        header("typ a number", .malformed, #"{"alg":"ES256","kid":"ec","typ":1}"#),
        header("kid unknown", .unknownKey, #"{"alg":"ES256","kid":"ec2"}"#),
        header("kid in another case", .unknownKey, #"{"alg":"ES256","kid":"EC"}"#),
        header("kid with a space", .unknownKey, #"{"alg":"ES256","kid":"ec "}"#),
        header("kid with NUL", .unknownKey, #"{"alg":"ES256","kid":"ec\u0000"}"#),
        header("kid a path", .unknownKey, #"{"alg":"ES256","kid":"../../dev/null"}"#),
        header("kid empty", .unknownKey, #"{"alg":"ES256","kid":""}"#),
        header("kid a number", .malformed, #"{"alg":"ES256","kid":1}"#),
        header("kid null", .malformed, #"{"alg":"ES256","kid":null}"#),
        header("no kid among several keys", .missingKeyID, #"{"alg":"ES256"}"#),
    ]

    static let signatures = [
        Case("another key's", .signature, Issuer.token(by: Issuer.stranger)),
        Case(
            "the key in the header", .signature,
            Issuer.token(#"{"alg":"ES256","kid":"ec","jwk":\#(Issuer.stranger.jwk())}"#, by: Issuer.stranger)),
        Case("other claims", .signature, parts[0] + "." + base64(Issuer.claims(["sub": #""bob""#])) + "." + parts[2]),
        Case(
            "another header", .signature,
            base64(#"{"alg":"ES256","typ":"JWT","kid":"ec"}"#) + "." + parts[1] + "." + parts[2]),
        Case("cut", .signature, parts[0] + "." + parts[1] + "." + base64(Array((decoded(parts[2]) ?? []).dropLast()))),
        Case("lengthened", .signature, parts[0] + "." + parts[1] + "." + base64((decoded(parts[2]) ?? []) + [0])),
        Case(
            "of the other RSA padding", .signature,
            Issuer.token(#"{"alg":"RS256","kid":"rsa"}"#, by: Issuer.rsa, isPSS: true)),
        Case("of PKCS #1 for PSS", .signature, Issuer.token(#"{"alg":"PS256","kid":"ps"}"#, by: Issuer.rsa)),
        Case(
            "of another digest", .signature,
            Issuer.token(#"{"alg":"RS256","kid":"rsa"}"#, by: Issuer.rsa, digest: "SHA512")),
    ]

    static let claimSets = [
        Case("not JSON", .malformed, Issuer.token(Issuer.header, "claims")),
        Case("an array", .malformed, Issuer.token(Issuer.header, "[]")),
        Case("a token inside", .malformed, Issuer.token(Issuer.header, good)),
        Case(
            "a claim twice", .malformed,
            Issuer.token(Issuer.header, #"{"sub":"bob","# + Issuer.claims().dropFirst())),
        Case(
            "exp twice, once escaped", .malformed,
            Issuer.token(Issuer.header, #"{"\u0065xp":9999999999,"# + Issuer.claims().dropFirst())),
        Case(
            "257 claims", .malformed,
            Issuer.token(Issuer.header, "{" + (0..<252).map { "\"\($0)\":0," }.joined() + Issuer.claims().dropFirst())),
        Case(
            "half of a surrogate pair", .malformed,
            Issuer.token(Issuer.header, Issuer.claims(["sub": #""\ud800""#]))),
        claims("no iss", .issuer, ["iss": nil]),
        claims("another iss", .issuer, ["iss": #""https://evil.example.com""#]),
        claims("iss with a slash more", .issuer, ["iss": #""https://id.example.com/""#]),
        claims("iss in another case", .issuer, ["iss": #""https://ID.example.com""#]),
        claims("iss in an array", .claim, ["iss": #"["https://id.example.com"]"#]),
        claims("no aud", .audience, ["aud": nil]),
        claims("another aud", .audience, ["aud": #""apis""#]),
        claims("aud in another case", .audience, ["aud": #""API""#]),
        claims("aud an empty array", .audience, ["aud": "[]"]),
        claims("aud of others", .audience, ["aud": #"["a","b"]"#]),
        claims("aud with a number", .claim, ["aud": #"["api",1]"#]),
        claims("aud an object", .claim, ["aud": #"{"api":true}"#]),
        claims("aud nested", .claim, ["aud": #"[["api"]]"#]),
        claims("65 audiences", .claim, ["aud": #"["api""# + String(repeating: #","x""#, count: 64) + "]"]),
        claims("no exp", .missingExpiry, ["exp": nil]),
        claims("exp null", .claim, ["exp": "null"]),
        claims("exp a string", .claim, ["exp": "\"\(Issuer.now + 300)\""]),
        claims("exp with an exponent", .claim, ["exp": "1e300"]),
        claims("exp beyond 64 bits", .claim, ["exp": "99999999999999999999"]),
        claims("exp in milliseconds", .claim, ["exp": "\(Issuer.now + 300)000"]),
        claims("expired", .expired, ["exp": "\(Issuer.now - Issuer.leeway)"]),
        claims("expired by decimals", .expired, ["exp": "\(Issuer.now - Issuer.leeway).9"]),
        claims("exp 0", .expired, ["exp": "0"]),
        claims("exp negative", .expired, ["exp": "-999999999999"]),
        claims("nbf ahead", .notYetValid, ["nbf": "\(Issuer.now + Issuer.leeway + 1)"]),
        claims("nbf ahead by decimals", .notYetValid, ["nbf": "\(Issuer.now + Issuer.leeway).1"]),
        claims("nbf a string", .claim, ["nbf": "\"0\""]),
        claims("no sub", .missingUser, ["sub": nil]),
        claims("sub a number", .claim, ["sub": "7"]),
        claims("sub null", .claim, ["sub": "null"]),
        claims("sub empty", .user, ["sub": #""""#]),
        claims("sub with NUL", .user, ["sub": #""a\u0000""#]),
        claims("sub with a tag", .user, ["sub": #""<b>a""#]),
        claims("sub with an escaped <", .user, ["sub": #""\u003ca""#]),
        claims("sub of 1025 bytes", .user, ["sub": "\"" + String(repeating: "x", count: 1025) + "\""]),
        claims(
            "cnf with a key (DPoP)", .boundToKey, ["cnf": #"{"jkt":"0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"}"#]),
        claims(
            "bound to a certificate", .boundToKey,
            ["cnf": #"{"x5t#S256":"\#(base64([UInt8](repeating: 7, count: 32)))"}"#]),
        claims("cnf empty", .boundToKey, ["cnf": "{}"]), claims("cnf null", .boundToKey, ["cnf": "null"]),
    ]

    @Test(arguments: shapes + headers + signatures + claimSets)
    func `a token that breaks a rule is refused for it`(_ refused: Case) {
        #expect(Issuer.verifier.rejection(refused.token) == refused.rejection)
    }

    @Test func `claims that are not UTF-8 are refused`() {
        var claims = Array(Issuer.claims(["sub": #""aXice""#]).utf8)
        claims = claims.map { $0 == UInt8(ascii: "X") ? 0xff : $0 }
        let signed = base64(Issuer.header) + "." + base64(claims)
        let token = signed + "." + base64(Issuer.p256.sign(Array(signed.utf8)))
        #expect(Issuer.verifier.rejection(token) == .malformed)
    }

    @Test func `a token of 16 KiB is accepted`() {
        #expect(Issuer.verifier.rejection(Self.padded(to: 16_380)) == nil)
    }
}
