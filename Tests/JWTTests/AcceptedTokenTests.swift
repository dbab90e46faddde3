import Testing

@testable import JWT

struct AcceptedTokenTests {
    @Test(arguments: [
        (#"{"alg":"RS256","kid":"rsa"}"#, Issuer.rsa, "SHA256", false),
        (#"{"alg":"PS256","kid":"ps"}"#, Issuer.rsa, "SHA256", true),
        (#"{"alg":"ES256","kid":"ec"}"#, Issuer.p256, "SHA256", false),
        (#"{"alg":"ES384","kid":"p384"}"#, Issuer.p384, "SHA384", false),
        (#"{"alg":"ES512","kid":"p521"}"#, Issuer.p521, "SHA512", false),
        (#"{"alg":"EdDSA","kid":"ed"}"#, Issuer.ed25519, "", false),
        (#"{"alg":"Ed25519","kid":"ed"}"#, Issuer.ed25519, "", false),
    ])
    func `a token of each algorithm is accepted`(_ header: String, _ key: SigningKey, _ digest: String, _ isPSS: Bool) {
        let token = Issuer.token(header, by: key, digest: digest, isPSS: isPSS)
        let outcome = Issuer.verifier.outcome(token)
        #expect(outcome.map(\.user) == .success(Array("alice".utf8)))
        #expect(outcome.map(\.expiresAt) == .success(Issuer.now + 300 + Issuer.leeway))
    }

    @Test(arguments: ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"])
    func `an RSA key has the algorithm that its JWK names`(_ name: String) throws {
        let keys = try Issuer.keys(Issuer.keySet([Issuer.rsa.jwk(#","kid":"k","alg":"\#(name)""#)]))
        let verifier = JWTVerifier(rules: Issuer.rules(), keys: keys)
        let token = Issuer.token(
            #"{"alg":"\#(name)","kid":"k"}"#, by: Issuer.rsa, digest: "SHA" + name.suffix(3),
            isPSS: name.hasPrefix("PS")
        )
        #expect(verifier.rejection(token) == nil)
    }

    @Test(arguments: [
        "at+jwt", "AT+JWT", "application/at+jwt", "Application/At+Jwt", "JWT", "jwt", "application/jwt",
    ])
    func `the type is compared as a media type`(_ type: String) {
        #expect(Issuer.verifier.rejection(Issuer.token(#"{"alg":"ES256","kid":"ec","typ":"\#(type)"}"#)) == nil)
    }

    /// Parts of a header or of claims that are not judged.
    @Test(arguments: [
        (#"{"alg":"ES256","kid":"ec"}"#, Issuer.claims()),
        (#" { "kid" : "ec" ,"alg":"\u0045S256" } "#, Issuer.claims()),
        (#"{"alg":"ES256","kid":"ec","jwk":{"kty":"oct"},"jku":"https://evil","x5c":["A"],"zip":1}"#, Issuer.claims()),
        (Issuer.header, Issuer.claims(["aud": #"["x","other-api"]"#])),
        (Issuer.header, Issuer.claims(["exp": "\(Issuer.now + 5).999"])),
        (Issuer.header, Issuer.claims(["exp": "\(Issuer.now - Issuer.leeway + 1)"])),
        (Issuer.header, Issuer.claims(["nbf": "\(Issuer.now + Issuer.leeway)"])),
        (Issuer.header, Issuer.claims(["nbf": "-5", "iat": "0"])),
        (Issuer.header, Issuer.claims(["iat": "\(Issuer.now + 1_000_000)"])),
        (Issuer.header, Issuer.claims(["iat": "true"])),
        (Issuer.header, Issuer.claims(["iat": nil])),
        (Issuer.header, Issuer.claims(["scope": #"{"a":[1,2e5,{"b":null}],"a":true}"#, "": "0"])),
    ])
    func `a token is accepted whatever else its header and claims have`(_ header: String, _ claims: String) {
        #expect(Issuer.verifier.rejection(Issuer.token(header, claims)) == nil)
    }

    @Test func `a token without key id belongs to the only key of a set`() throws {
        let keys = try Issuer.keys(Issuer.keySet([Issuer.p256.jwk(#","kid":"ec""#), #"{"kty":"oct","k":"AAAA"}"#]))
        let verifier = JWTVerifier(rules: Issuer.rules(), keys: keys)
        #expect(verifier.rejection(Issuer.token(#"{"alg":"ES256"}"#)) == nil)
        #expect(verifier.rejection(Issuer.token(#"{"alg":"ES256","kid":"ec"}"#)) == nil)
        #expect(verifier.rejection(Issuer.token(#"{"alg":"ES256","kid":"EC"}"#)) == .unknownKey)
    }

    // MARK: - The user

    @Test(arguments: ["a", "alice@example.com", "жанна", "a b", "\u{1}", String(repeating: "x", count: 1024)])
    func `the claim that the settings name is the user`(_ user: String) {
        let escaped = user == "\u{1}" ? #"\u0001"# : user
        let outcome = Issuer.verifier.outcome(Issuer.token(Issuer.header, Issuer.claims(["sub": "\"\(escaped)\""])))
        #expect(outcome.map(\.user) == .success(Array(user.utf8)))
        let verifier = JWTVerifier(rules: Issuer.rules(userClaim: "email"), keys: Issuer.verifier.keys)
        let claims = Issuer.claims(["sub": "7", "email": "\"\(escaped)\""])
        #expect(verifier.outcome(Issuer.token(Issuer.header, claims)).map(\.user) == .success(Array(user.utf8)))
    }
}

/// One verifier for all loops.
struct SharedVerifierTests {
    @Test func `several threads verify at once`() async {
        let good = [
            Issuer.token(), Issuer.token(#"{"alg":"RS256","kid":"rsa"}"#, by: Issuer.rsa),
            Issuer.token(#"{"alg":"PS256","kid":"ps"}"#, by: Issuer.rsa, isPSS: true),
            Issuer.token(#"{"alg":"EdDSA","kid":"ed"}"#, by: Issuer.ed25519),
        ]
        let forged = Issuer.token(by: Issuer.stranger)
        await withTaskGroup(of: Bool.self) { group in
            for _ in 0..<4 {
                group.addTask {
                    (0..<100).allSatisfy { round in
                        Issuer.verifier.rejection(good[round % good.count]) == nil
                            && Issuer.verifier.rejection(forged) == .signature
                    }
                }
            }
            for await isRight in group { #expect(isRight) }
        }
    }
}
