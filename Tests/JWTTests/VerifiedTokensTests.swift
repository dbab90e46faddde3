import Metrics
import Testing

@testable import JWT
@testable import TokenService

struct VerifiedTokensTests {
    private let counts = VerifiedTokens.Counts()

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
        let tokens = VerifiedTokens(Issuer.verifier, counts: counts)
        let (alice, bob) = (Self.token(of: "alice"), Self.token(of: "bob"))
        for _ in 0..<3 {
            #expect(verify(alice, in: tokens).map(\.user) == .success(Array("alice".utf8)))
            #expect(verify(bob, in: tokens).map(\.user) == .success(Array("bob".utf8)))
        }
        #expect(counts.misses.value == 2 && counts.hits.value == 4)
        #expect(counts.bytes.value > UInt64(alice.utf8.count + bob.utf8.count))
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
        #expect(counts.hits.value == 0)
        #expect(verify(good, in: tokens).map(\.user) == .success(Array("alice".utf8)))
        #expect(counts.hits.value == 1)
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
    }

    @Test func `when the keys change, all tokens are forgotten at once`() throws {
        let tokens = VerifiedTokens(Issuer.verifier, counts: counts)
        let token = Self.token(of: "alice")
        #expect(verify(token, in: tokens).map(\.user) == .success(Array("alice".utf8)))
        tokens.use(Issuer.verifier)
        #expect(counts.bytes.value > 0)
        let keys = try Issuer.keys(Issuer.keySet([Issuer.stranger.jwk(#","kid":"ec""#)]))
        tokens.use(JWTVerifier(rules: Issuer.rules(), keys: keys))
        #expect(counts.bytes.value == 0)
        #expect(verify(token, in: tokens) == .failure(.signature))
    }

    @Test func `tokens stay within the limit of bytes, and the last ones are remembered`() {
        let tokens = VerifiedTokens(Issuer.verifier, limit: 10_000, counts: counts)
        var last = ""
        for index in 0..<40 {
            let pad = String(repeating: "p", count: index % 10 * 13)
            last = Issuer.token(Issuer.header, Issuer.claims(["pad": "\"\(pad)\""]))
            _ = verify(last, in: tokens)
            #expect(counts.bytes.value <= 10_000)
        }
        #expect(counts.hits.value == 0)
        _ = verify(last, in: tokens)
        #expect(counts.hits.value == 1 && counts.bytes.value > 5_000)
        // One that would take an eighth of the room is not kept.
        let long = String(repeating: "p", count: 2000)
        let token = Issuer.token(Issuer.header, Issuer.claims(["pad": "\"\(long)\""]))
        for _ in 0..<2 { #expect(verify(token, in: tokens).map(\.user) == .success(Array("alice".utf8))) }
        #expect(counts.hits.value == 1)
    }

    @Test func `used entries stay, and unused ones make room`() {
        var entries = RecentEntries<Int, Int>(limit: 100)
        for number in 0..<1_000 {
            entries.insert(number, under: number, cost: 10)
            let isKept = entries.find(0) == 0
            #expect(isKept && entries.bytes <= 100 && entries.count <= 10)
        }
        let (last, first) = (entries.find(999), entries.find(1))
        #expect(last == 999 && first == nil)
        entries.insert(7, under: 999, cost: 10)
        let replaced = entries.find(999)
        #expect(replaced == 7 && entries.bytes == 10 * entries.count)
    }
}
