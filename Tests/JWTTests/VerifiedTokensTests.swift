import Testing

@testable import JWT
@testable import TokenService

struct VerifiedTokensTests {
    private func verify(
        _ token: String, in tokens: VerifiedTokens, at time: Int64 = Issuer.now
    ) -> Result<VerifiedToken, JWTRejection> {
        let token = Array(token.utf8)
        do throws(JWTRejection) {
            return .success(try tokens.verify(token.span, at: time))
        } catch {
            return .failure(error)
        }
    }

    private static func token(of user: String, until expiry: Int64 = Issuer.now + 300) -> String {
        Issuer.token(Issuer.header, Issuer.claims(["sub": "\"\(user)\"", "exp": "\(expiry)"]))
    }

    @Test func `a token is verified once`() {
        let tokens = VerifiedTokens(Issuer.verifier)
        let (alice, bob) = (Self.token(of: "alice"), Self.token(of: "bob"))
        for _ in 0..<3 {
            #expect(verify(alice, in: tokens).map(\.user) == .success(Array("alice".utf8)))
            #expect(verify(bob, in: tokens).map(\.user) == .success(Array("bob".utf8)))
        }
        #expect(tokens.counts.misses == 2 && tokens.counts.hits == 4)
        #expect(tokens.counts.bytes > alice.utf8.count + bob.utf8.count)
    }

    @Test func `a refused token is not remembered, and neither is one like a good one`() {
        let tokens = VerifiedTokens(Issuer.verifier)
        let good = Self.token(of: "alice")
        #expect(verify(good, in: tokens).map(\.user) == .success(Array("alice".utf8)))
        // The same end, which is what is hashed.
        let forged =
            base64(Issuer.header) + "." + base64(Issuer.claims(["sub": #""mallory""#]))
            + good.suffix(87)
        for _ in 0..<2 { #expect(verify(forged, in: tokens) == .failure(.signature)) }
        #expect(verify(String(good.dropFirst()), in: tokens) == .failure(.malformed))
        #expect(verify(String(good.dropLast()), in: tokens) == .failure(.malformed))
        #expect(verify("", in: tokens) == .failure(.malformed))
        #expect(tokens.counts.entries == 1)
        #expect(verify(good, in: tokens).map(\.user) == .success(Array("alice".utf8)))
    }

    @Test func `a remembered token expires by the clock`() {
        let tokens = VerifiedTokens(Issuer.verifier)
        let token = Issuer.token(
            Issuer.header, Issuer.claims(["exp": "\(Issuer.now + 10)", "nbf": "\(Issuer.now - 10)"]))
        let last = Issuer.now + 10 + Issuer.leeway - 1
        #expect(verify(token, in: tokens).map(\.expiresAt) == .success(last + 1))
        #expect(verify(token, in: tokens, at: last).map(\.expiresAt) == .success(last + 1))
        #expect(verify(token, in: tokens, at: last + 1) == .failure(.expired))
        // Set back before the token counts.
        #expect(verify(token, in: tokens, at: Issuer.now - 1000) == .failure(.notYetValid))
    }

    @Test func `tokens stay within the limit of bytes, and the last ones are remembered`() {
        let tokens = VerifiedTokens(Issuer.verifier, limit: 160_000)
        var last = ""
        for index in 0..<400 {
            last = Self.token(of: "user\(index)" + String(repeating: "p", count: index % 10 * 13))
            _ = verify(last, in: tokens)
            #expect(tokens.counts.bytes <= 160_000)
        }
        #expect(tokens.counts.hits == 0)
        _ = verify(last, in: tokens)
        #expect(tokens.counts.hits == 1 && tokens.counts.bytes > 60_000)
        // One that would take an eighth of its part of the room is not kept.
        let long = Issuer.token(Issuer.header, Issuer.claims(["pad": "\"\(String(repeating: "p", count: 2000))\""]))
        for _ in 0..<2 { #expect(verify(long, in: tokens).map(\.user) == .success(Array("alice".utf8))) }
        #expect(tokens.counts.hits == 1)
    }
}
