import Metrics
import Testing

@testable import JWT

struct VerifiedTokensTests {
    private let counts = VerifiedTokens.Counts()

    private func verify(
        _ token: String, in tokens: VerifiedTokens, at time: Int64 = Issuer.now,
        certificate: [UInt8]? = nil
    ) -> Result<VerifiedToken, JWTRejection> {
        let token = Array(token.utf8)
        do throws(JWTRejection) {
            return .success(try tokens.verify(token.span, at: time, certificateThumbprint: certificate))
        } catch {
            return .failure(error)
        }
    }

    private static func token(of user: String, until expiry: Int64 = Issuer.now + 300) -> String {
        Issuer.token(Issuer.header, Issuer.claims(["sub": "\"\(user)\"", "exp": "\(expiry)"]))
    }

    @Test func `a token is verified once`() {
        let tokens = VerifiedTokens(Issuer.verifier, counts: counts)
        let (alice, bob) = (Self.token(of: "alice"), Self.token(of: "bob"))
        for _ in 0..<3 {
            #expect(verify(alice, in: tokens).map(\.user) == .success(Array("alice".utf8)))
            #expect(verify(bob, in: tokens).map(\.user) == .success(Array("bob".utf8)))
        }
        #expect(counts.misses.value == 2 && counts.hits.value == 4 && counts.entries.value == 2)
        #expect(counts.bytes.value > UInt64(alice.utf8.count + bob.utf8.count))
        tokens.removeAll()
        #expect(counts.entries.value == 0 && counts.bytes.value == 0)
        #expect(verify(alice, in: tokens).map(\.user) == .success(Array("alice".utf8)))
    }

    @Test func `a refused token is not remembered, and neither is one like a good one`() {
        let tokens = VerifiedTokens(Issuer.verifier, counts: counts)
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
        #expect(counts.entries.value == 1 && counts.hits.value == 0)
    }

    @Test func `a remembered token expires by the clock`() {
        let tokens = VerifiedTokens(Issuer.verifier, counts: counts)
        let token = Issuer.token(
            Issuer.header, Issuer.claims(["exp": "\(Issuer.now + 10)", "nbf": "\(Issuer.now - 10)"]))
        let last = Issuer.now + 10 + Issuer.leeway - 1
        #expect(verify(token, in: tokens).map(\.expiresAt) == .success(last + 1))
        #expect(verify(token, in: tokens, at: last).map(\.expiresAt) == .success(last + 1))
        #expect(verify(token, in: tokens, at: last + 1) == .failure(.expired))
        // Set back before the token counts.
        #expect(verify(token, in: tokens, at: Issuer.now - 1000) == .failure(.notYetValid))
        tokens.removeExpired(at: last)
        #expect(counts.entries.value == 1)
        tokens.removeExpired(at: last + 1)
        #expect(counts.entries.value == 0 && counts.evictions.value == 0)
    }

    @Test func `a remembered token is bound to its certificate`() {
        let tokens = VerifiedTokens(Issuer.verifier, counts: counts)
        let thumbprint = [UInt8](1...32)
        let claims = Issuer.claims(["cnf": #"{"x5t#S256":"\#(base64(thumbprint))"}"#])
        let token = Issuer.token(Issuer.header, claims)
        #expect(verify(token, in: tokens, certificate: thumbprint).map(\.thumbprint) == .success(thumbprint))
        #expect(verify(token, in: tokens) == .failure(.certificate))
        #expect(verify(token, in: tokens, certificate: thumbprint.reversed()) == .failure(.certificate))
        #expect(verify(token, in: tokens, certificate: thumbprint).map(\.thumbprint) == .success(thumbprint))
        #expect(counts.hits.value == 3)
    }

    @Test func `other keys forget at once what was verified before`() throws {
        let tokens = VerifiedTokens(Issuer.verifier, counts: counts)
        let token = Self.token(of: "alice")
        #expect(verify(token, in: tokens).map(\.user) == .success(Array("alice".utf8)))
        tokens.use(Issuer.verifier)
        #expect(counts.entries.value == 1)
        let keys = try Issuer.keys(Issuer.keySet([Issuer.stranger.jwk(#","kid":"ec""#)]))
        tokens.use(JWTVerifier(rules: Issuer.rules(), keys: keys))
        #expect(counts.entries.value == 0 && counts.bytes.value == 0)
        #expect(verify(token, in: tokens) == .failure(.signature))
    }

    @Test func `a memory that is released has forgotten everything`() {
        do {
            let tokens = VerifiedTokens(Issuer.verifier, counts: counts)
            _ = verify(Self.token(of: "alice"), in: tokens)
            #expect(counts.entries.value == 1)
        }
        #expect(counts.entries.value == 0)
    }

    @Test func `the earliest makes room within the limit of tokens`() {
        let tokens = VerifiedTokens(Issuer.verifier, countLimit: 3, counts: counts)
        let all = (0..<8).map { Self.token(of: "user\($0)") }
        for (index, token) in all.enumerated() {
            #expect(verify(token, in: tokens).map(\.user) == .success(Array("user\(index)".utf8)))
            #expect(counts.entries.value == UInt64(min(3, index + 1)))
        }
        #expect(counts.evictions.value == 5)
        for token in all.suffix(3) { _ = verify(token, in: tokens) }
        #expect(counts.hits.value == 3)
        _ = verify(all[0], in: tokens)
        #expect(counts.hits.value == 3)
    }

    @Test func `tokens stay within the limit of bytes`() {
        let tokens = VerifiedTokens(Issuer.verifier, byteLimit: 10_000, counts: counts)
        for index in 0..<40 {
            let pad = String(repeating: "p", count: index * 13)
            _ = verify(Issuer.token(Issuer.header, Issuer.claims(["pad": "\"\(pad)\""])), in: tokens)
            #expect(counts.bytes.value <= 10_000)
        }
        #expect(counts.entries.value > 5)
        // One that would take an eighth of the room is not kept.
        let entries = counts.entries.value
        let long = String(repeating: "p", count: 2000)
        #expect(
            verify(Issuer.token(Issuer.header, Issuer.claims(["pad": "\"\(long)\""])), in: tokens).map(\.thumbprint)
                == .success(nil))
        #expect(counts.entries.value == entries)
    }

    @Test func `expired tokens make room first`() {
        let tokens = VerifiedTokens(Issuer.verifier, countLimit: 2, counts: counts)
        _ = verify(Self.token(of: "a", until: Issuer.now + 1), in: tokens)
        let lasting = Self.token(of: "b", until: Issuer.now + 900)
        _ = verify(lasting, in: tokens)
        _ = verify(Self.token(of: "c", until: Issuer.now + 900), in: tokens, at: Issuer.now + 100)
        #expect(counts.evictions.value == 0 && counts.entries.value == 2)
        _ = verify(lasting, in: tokens, at: Issuer.now + 100)
        #expect(counts.hits.value == 1)
    }
}
