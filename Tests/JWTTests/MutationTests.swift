import Cryptography
import TestSupport
import Testing

@testable import JWT

/// Good tokens that were changed at random: no change is accepted, not even one that leaves all meanings as they were.
struct MutationTests {
    private static let tokens = [
        Issuer.token(), Issuer.token(#"{"alg":"RS256","kid":"rsa"}"#, by: Issuer.rsa),
        Issuer.token(#"{"alg":"PS256","kid":"ps"}"#, by: Issuer.rsa, isPSS: true),
        Issuer.token(#"{"alg":"EdDSA","kid":"ed"}"#, by: Issuer.ed25519),
    ].map { Array($0.utf8) }

    private static let alphabet = Array(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.=+/ \n\0".utf8)

    /// The token with one to three changes.
    private static func mutated(_ token: [UInt8], _ random: inout SeededGenerator) -> [UInt8] {
        var bytes = token
        for _ in 0...Int.random(in: 0...2, using: &random) {
            guard !bytes.isEmpty else { break }
            let (first, second) = (
                Int.random(in: 0..<bytes.count, using: &random), Int.random(in: 0..<bytes.count, using: &random)
            )
            switch Int.random(in: 0..<9, using: &random) {
            case 0: bytes[first] ^= 1 << UInt8.random(in: 0..<8, using: &random)
            case 1: bytes.swapAt(first, second)
            case 2: bytes.removeLast(bytes.count - first)
            case 3: bytes.insert(alphabet.randomElement(using: &random) ?? 0, at: first)
            case 4: bytes.remove(at: first)
            case 5: bytes[first] = alphabet.randomElement(using: &random) ?? 0
            case 6: bytes.replaceSubrange(min(first, second)..<max(first, second), with: [])
            case 7: bytes.insert(contentsOf: bytes[min(first, second)..<max(first, second)], at: first)
            // A part of another token.
            default:
                let other = tokens.randomElement(using: &random) ?? token
                let end = min(bytes.count, other.count)
                let start = min(first, end)
                bytes.replaceSubrange(start..<end, with: other[start..<end])
            }
        }
        return bytes
    }

    @Test(arguments: 0..<16 as Range<UInt64>)
    func `no changed token is accepted`(_ seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        for _ in 0..<150 {
            let token = Self.tokens.randomElement(using: &random) ?? []
            let changed = Self.mutated(token, &random)
            // Changes may undo one another, or make another one of the good tokens.
            if Self.tokens.contains(changed) { continue }
            if case .success = Issuer.verifier.outcome(changed) {
                Issue.record("accepted with seed \(seed): \(String(decoding: changed, as: UTF8.self))")
            }
        }
    }

    /// The last character of a part has bits that stand for nothing where its length is no multiple of four.
    @Test func `other characters for the same bytes are refused`() {
        let alphabet = Self.alphabet.prefix(64)
        for token in Self.tokens {
            let ends = token.indices.filter { $0 + 1 == token.count || token[$0 + 1] == UInt8(ascii: ".") }
            for end in ends {
                for character in alphabet where character != token[end] {
                    var changed = token
                    changed[end] = character
                    if case .success = Issuer.verifier.outcome(changed) { Issue.record("accepted at \(end)") }
                }
            }
        }
    }

    /// Headers and claims of random JSON, properly signed: whatever they are, nothing but a good token is accepted.
    @Test(arguments: 0..<16 as Range<UInt64>)
    func `signed nonsense is refused`(_ seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let good = (Array(Issuer.header.utf8), Array(Issuer.claims().utf8))
        let pieces = [#"""#, "{", "}", "[", "]", ",", ":", "\\u0000", "\\", "1e9", "null", #""alg":"none","#, "\u{e9}"]
        func changed(_ text: [UInt8], _ random: inout SeededGenerator) -> [UInt8] {
            var text = text
            let place = Int.random(in: 0...text.count, using: &random)
            if Bool.random(using: &random) {
                text.insert(contentsOf: Array((pieces.randomElement(using: &random) ?? "").utf8), at: place)
            } else if place < text.count {
                text[place] = UInt8.random(in: 0...255, using: &random)
            }
            return text
        }
        for _ in 0..<100 {
            let (header, claims) =
                Bool.random(using: &random)
                ? (changed(good.0, &random), good.1) : (good.0, changed(good.1, &random))
            let signed = base64(header) + "." + base64(claims)
            let token = signed + "." + base64(Issuer.p256.sign(Array(signed.utf8)))
            guard case .success(let verified) = Issuer.verifier.outcome(token) else { continue }
            // What was changed may be the name of the user or a time.
            let isText = (try? UTF8Span(validating: verified.user.span)) != nil
            #expect(isText && !verified.user.contains(0) && !verified.user.contains(UInt8(ascii: "<")), "seed \(seed)")
            #expect(verified.expiresAt > Issuer.now && !verified.user.isEmpty, "seed \(seed)")
        }
    }
}
