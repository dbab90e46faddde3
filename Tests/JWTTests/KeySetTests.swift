import Cryptography
import Synchronization
import System
import Testing

@testable import JWT

struct KeySetTests {
    private static func result(_ text: String) -> Result<JWTKeySet, KeyFileError> {
        let text = Array(text.utf8)
        do throws(KeyFileError) {
            return .success(try JWTKeySet(parsing: text.span, of: "jwks"))
        } catch {
            return .failure(error)
        }
    }

    private static func refusal(_ text: String) -> String? {
        guard case .failure(let error) = result(text) else { return nil }
        return "\(error)"
    }

    /// Why a key is not used beside a good one; nil if it is.
    private static func reason(_ key: String) throws -> SkippedKey.Reason? {
        let set = try result(Issuer.keySet([Issuer.p521.jwk(#","kid":"good""#), key])).get()
        #expect(set.count + set.skipped.count == 2)
        return set.skipped.first?.reason
    }

    struct Skipped: Sendable, CustomTestStringConvertible {
        let key: String
        let reason: SkippedKey.Reason?

        init(_ key: String, _ reason: SkippedKey.Reason?) { (self.key, self.reason) = (key, reason) }

        var testDescription: String { "\(reason.map(\.description) ?? "used"): \(key.prefix(100))" }
    }

    private static let weak = SigningKey(.rsa(bits: 1024))
    private static let koblitz = SigningKey(.ellipticCurve("secp256k1"))
    /// An RSA key with other numbers.
    private static func rsa(n: [UInt8] = Issuer.rsa.number("n"), e: [UInt8] = [1, 0, 1]) -> String {
        #"{"kty":"RSA","kid":"k","n":"\#(base64(n))","e":"\#(base64(e))"}"#
    }
    private static func p256(x: [UInt8] = Issuer.p256.number("qx", 32), y: [UInt8] = Issuer.p256.number("qy", 32))
        -> String
    {
        #"{"kty":"EC","crv":"P-256","kid":"k","x":"\#(base64(x))","y":"\#(base64(y))"}"#
    }
    private static func ed25519(_ x: [UInt8]) -> String {
        #"{"kty":"OKP","crv":"Ed25519","kid":"k","x":"\#(base64(x))"}"#
    }
    private static func hexadecimal(_ text: String) -> [UInt8] { Hexadecimal.decode(text.utf8) ?? [] }
    /// A point of Ed25519 whose order divides 8, by its first byte.
    private static func smallOrder(_ first: String) -> [UInt8] {
        hexadecimal(
            [
                "26": "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
                "c7": "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
            ][first]
                ?? (first.hasPrefix("e")
                    ? first + String(repeating: "f", count: 60) + "7f" : first + String(repeating: "0", count: 62)))
    }
    private static let modulus = Issuer.rsa.number("n")
    /// A number with another last bit.
    private static func changed(_ number: [UInt8]) -> [UInt8] { number.dropLast() + [number[number.count - 1] ^ 1] }

    static let keys = [
        Skipped(#"{"kid":"k"}"#, .otherUse),
        Skipped(#"{"kty":"rsa"}"#, .otherUse),
        Skipped(#"{"kty":"AKP","alg":"ML-DSA-44"}"#, .otherUse),
        Skipped(#"{"kty":1}"#, .otherUse),
        Skipped(#"{"kty":"oct","k":"AAAA","alg":"HS256","kid":"k"}"#, .symmetric),
        Skipped(#"{"kty":"EC","crv":"P-192","kid":"k"}"#, .otherUse),
        Skipped(koblitz.jwk(#","kid":"k""#), .otherUse),
        Skipped(#"{"kty":"OKP","crv":"X25519","kid":"k","x":"AAAA"}"#, .otherUse),
        Skipped(#"{"kty":"OKP","crv":"Ed448","kid":"k","x":"AAAA"}"#, .otherUse),
        Skipped(#"{"kty":"OKP","kid":"k","x":"AAAA"}"#, .otherUse),
        Skipped(Issuer.p256.jwk(#","kid":"k","use":"enc""#), .otherUse),
        Skipped(Issuer.p256.jwk(#","kid":"k","use":"SIG""#), .otherUse),
        Skipped(Issuer.p256.jwk(#","kid":"k","use":1"#), .otherUse),
        Skipped(Issuer.p256.jwk(#","kid":"k","key_ops":["sign"]"#), .otherUse),
        Skipped(Issuer.p256.jwk(#","kid":"k","key_ops":[]"#), .otherUse),
        Skipped(Issuer.p256.jwk(#","kid":"k","key_ops":"verify""#), .otherUse),
        Skipped(Issuer.p256.jwk(#","kid":"k","use":"sig","key_ops":["verify","encrypt"]"#), nil),
        Skipped(Issuer.p256.jwk(#","kid":"k","alg":"ES384""#), .malformed(member: "alg")),
        Skipped(Issuer.p256.jwk(#","kid":"k","alg":"RS256""#), .malformed(member: "alg")),
        Skipped(Issuer.rsa.jwk(#","kid":"k","alg":"ES256""#), .malformed(member: "alg")),
        Skipped(Issuer.rsa.jwk(#","kid":"k","alg":"RSA-OAEP""#), .otherUse),
        Skipped(Issuer.rsa.jwk(#","kid":"k","alg":"HS256""#), .otherUse),
        Skipped(Issuer.rsa.jwk(#","kid":"k","alg":"none""#), .otherUse),
        Skipped(Issuer.rsa.jwk(#","kid":"k","alg":null,"use":null,"key_ops":null,"d":null"#), nil),
        Skipped(Issuer.rsa.jwk(#","kid":null"#), .withoutKeyID),
        Skipped("null", .notAnObject),
        Skipped("[]", .notAnObject),
        Skipped("7", .notAnObject),
        Skipped(Issuer.rsa.jwk(#","kid":7"#), .withoutKeyID),
        Skipped(Issuer.rsa.jwk(), .withoutKeyID),
        Skipped(Issuer.p521.jwk(#","kid":"good""#), nil),
        Skipped(Issuer.ed25519.jwk(#","kid":"k","alg":"Ed25519""#), nil),
        Skipped(Issuer.ed25519.jwk(#","kid":"k","x5c":["A"],"x5t":"B","iat":1"#), nil),

        Skipped(#"{"kty":"RSA","kid":"k","e":"AQAB"}"#, .malformed(member: "n")),
        Skipped(#"{"kty":"RSA","kid":"k","n":"A=","e":"AQAB"}"#, .malformed(member: "n")),
        Skipped(#"{"kty":"RSA","kid":"k","n":65537,"e":"AQAB"}"#, .malformed(member: "n")),
        Skipped(#"{"kty":"RSA","kid":"k","n":"\#(base64(modulus))"}"#, .malformed(member: "e")),
        Skipped(weak.jwk(#","kid":"k""#), .modulusSize(1024)),
        Skipped(rsa(n: []), .modulusSize(0)),
        Skipped(rsa(n: [0x7f] + modulus.dropFirst()), .modulusSize(2047)),
        Skipped(rsa(n: [1] + [UInt8](repeating: 0xff, count: 1024)), .modulusSize(8193)),
        Skipped(rsa(n: [0] + modulus), nil),
        // An even number, and a prime: 2^2203 - 1.
        Skipped(rsa(n: changed(modulus)), .invalidKey),
        Skipped(rsa(n: [0x07] + [UInt8](repeating: 0xff, count: 275)), .invalidKey),
        Skipped(rsa(e: []), .malformed(member: "e")), Skipped(rsa(e: [0]), .malformed(member: "e")),
        Skipped(rsa(e: [1]), .malformed(member: "e")), Skipped(rsa(e: [1, 0, 0]), .malformed(member: "e")),
        Skipped(rsa(e: [1, 0, 0, 0, 1]), .malformed(member: "e")),
        Skipped(rsa(e: [3]), nil),
        Skipped(rsa().replacing("AQAB", with: "AQAB="), nil),
        Skipped(rsa().replacing("\"\(base64(modulus))\"", with: "\"\(base64(modulus))==\""), nil),
        Skipped(rsa().replacing("\"\(base64(modulus))\"", with: "\"\(base64(modulus))===\""), .malformed(member: "n")),

        Skipped(p256(), nil),
        Skipped(p256(x: Array(Issuer.p256.number("qx", 32).dropLast())), .malformed(member: "x")),
        Skipped(p256(y: [0] + Issuer.p256.number("qy", 32)), .malformed(member: "y")),
        Skipped(#"{"kty":"EC","crv":"P-256","kid":"k","x":"AA"}"#, .malformed(member: "y")),
        Skipped(p256(y: changed(Issuer.p256.number("qy", 32))), .invalidKey),
        Skipped(p256(x: Issuer.p256.number("qy", 32), y: Issuer.p256.number("qx", 32)), .invalidKey),
        Skipped(p256(x: [UInt8](repeating: 0, count: 32), y: [UInt8](repeating: 0, count: 32)), .invalidKey),
        Skipped(p256(x: [UInt8](repeating: 0xff, count: 32)), .invalidKey),

        Skipped(ed25519(Issuer.ed25519.point + [0]), .malformed(member: "x")),
        Skipped(ed25519(smallOrder("00")), .invalidKey), Skipped(ed25519(smallOrder("01")), .invalidKey),
        Skipped(ed25519(smallOrder("26")), .invalidKey), Skipped(ed25519(smallOrder("c7")), .invalidKey),
        Skipped(ed25519(smallOrder("ec")), .invalidKey), Skipped(ed25519(smallOrder("ed")), .invalidKey),
        Skipped(ed25519(smallOrder("ee")), .invalidKey),
        Skipped(ed25519([1] + [UInt8](repeating: 0, count: 30) + [0x80]), .invalidKey),
        Skipped(ed25519(hexadecimal("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85")), .invalidKey),
    ]

    @Test(arguments: keys)
    func `a key that cannot be used is skipped for its reason`(_ skipped: Skipped) throws {
        #expect(try Self.reason(skipped.key) == skipped.reason)
    }

    @Test func `a key with alg has that algorithm, and one without it those of its kind`() throws {
        let cases: [(jwk: String, [JWTAlgorithm])] = [
            (Issuer.rsa.jwk(#","alg":"RS512""#), [.rs512]), (Issuer.rsa.jwk(#","alg":"PS256""#), [.ps256]),
            (Issuer.rsa.jwk(), [.rs256, .rs384, .rs512, .ps256, .ps384, .ps512]), (Issuer.p256.jwk(), [.es256]),
            (Issuer.p384.jwk(), [.es384]), (Issuer.p521.jwk(), [.es512]), (Issuer.ed25519.jwk(), [.edDSA]),
        ]
        for (jwk, algorithms) in cases {
            #expect(try Self.result(Issuer.keySet([jwk])).get().onlyKey?.algorithms == algorithms)
        }
    }

    @Test func `a summary says which algorithms each key has`() throws {
        let keys = [
            Issuer.rsa.jwk(#","kid":"a""#), Issuer.p384.jwk(#","kid":"b","use":"enc""#),
            Issuer.p256.jwk(#","kid":"c""#),
        ]
        let set = try Self.result(Issuer.keySet(keys)).get()
        #expect(
            set.summary == """
                kid a: RS256, RS384, RS512, PS256, PS384, PS512; kid c: ES256; \
                key 2 (kid b) is not used: it is not for verifying signatures (use, key_ops), or its kty, crv or alg is unknown
                """)
    }

    /// A verifier of a set, and what it reports.
    private static func reporting(_ keys: [String]) throws -> (verifier: JWTVerifier, reports: Reports) {
        let (set, reports) = (try result(Issuer.keySet(keys)).get(), Reports())
        let verifier = JWTVerifier(rules: Issuer.rules(), keys: set) { text in
            reports.texts.withLock { $0.append(text) }
        }
        return (verifier, reports)
    }

    private final class Reports: Sendable {
        let texts = Mutex<[String]>([])
        var all: [String] { texts.withLock(\.self) }
    }

    @Test func `the issuer's tokens of other algorithms are reported once, and nobody else's`() throws {
        let keys = [
            Issuer.rsa.jwk(#","kid":"a","alg":"RS256""#), Issuer.rsa.jwk(#","kid":"b","alg":"PS512""#),
            Issuer.p256.jwk(#","kid":"c""#),
        ]
        let (verifier, reports) = try Self.reporting(keys)
        let forged = Issuer.token(#"{"alg":"RS512","kid":"a"}"#, by: SigningKey(.rsa(bits: 2048)), digest: "SHA512")
        var time = Issuer.now
        for token in [forged, Issuer.token(#"{"alg":"RS512","kid":"c"}"#, by: Issuer.p256)] {
            time += 1
            #expect(verifier.rejection(token, at: time) == .otherAlgorithm)
        }
        #expect(reports.all == [])
        let genuine = [
            Issuer.token(#"{"alg":"RS512","kid":"a"}"#, by: Issuer.rsa, digest: "SHA512"),
            Issuer.token(#"{"alg":"PS384","kid":"a"}"#, by: Issuer.rsa, digest: "SHA384", isPSS: true),
            Issuer.token(#"{"alg":"RS256","kid":"b"}"#, by: Issuer.rsa),
        ]
        for token in genuine + genuine {
            time += 1
            // In one second, one token is verified for a report.
            for token in [token, forged] { #expect(verifier.rejection(token, at: time) == .otherAlgorithm) }
        }
        let rule = "is refused: the key is only for"
        #expect(
            reports.all == [
                "a token that a key of the issuer (kid a) has signed with RS512 \(rule) RS256, by its alg or its kind",
                "a token that a key of the issuer (kid a) has signed with PS384 \(rule) RS256, by its alg or its kind",
                "a token that a key of the issuer (kid b) has signed with RS256 \(rule) PS512, by its alg or its kind",
            ])
    }

    @Test func `a salt of another length is reported, whether the algorithm is allowed or not`() throws {
        for (algorithm, reason) in [
            ("PS256", "its salt is not as long as the hash, as RFC 7518 (section 3.5) asks"),
            ("RS256", "the key is only for RS256, by its alg or its kind"),
        ] {
            let (verifier, reports) = try Self.reporting([Issuer.rsa.jwk(#","kid":"a","alg":"\#(algorithm)""#)])
            for (time, key) in zip(Issuer.now..., [SigningKey(.rsa(bits: 2048)), Issuer.rsa, Issuer.rsa]) {
                let token = Issuer.token(#"{"alg":"PS256","kid":"a"}"#, by: key, isPSS: true, saltLength: 222)
                let expected: JWTRejection = algorithm == "PS256" ? .signature : .otherAlgorithm
                #expect(verifier.rejection(token, at: time) == expected)
            }
            #expect(
                reports.all == ["a token that a key of the issuer (kid a) has signed with PS256 is refused: \(reason)"])
        }
    }

    @Test func `a key without alg verifies with each algorithm of its kind`() throws {
        let (verifier, reports) = try Self.reporting([Issuer.rsa.jwk(#","kid":"a""#)])
        #expect(verifier.rejection(Issuer.token(#"{"alg":"PS256","kid":"a"}"#, by: Issuer.rsa, isPSS: true)) == nil)
        #expect(verifier.rejection(Issuer.token(#"{"alg":"RS256","kid":"a"}"#, by: Issuer.rsa)) == nil)
        #expect(
            verifier.rejection(Issuer.token(#"{"alg":"RS512","kid":"a"}"#, by: Issuer.rsa, digest: "SHA512")) == nil)
        // The algorithm is the header's.
        #expect(verifier.rejection(Issuer.token(#"{"alg":"RS512","kid":"a"}"#, by: Issuer.rsa)) == .signature)
        #expect(reports.all == [])
    }

    @Test func `the only usable key is that of tokens without key id`() throws {
        let unusable = #"{"kty":"oct","k":"AAAA","kid":"secret"}"#
        let one = try Self.result(Issuer.keySet([unusable, Issuer.p256.jwk()])).get()
        #expect(one.count == 1 && one.algorithm(for: nil) == .es256 && one.algorithm(for: "a") == .es256)
        let named = try Self.result(Issuer.keySet([unusable, Self.good])).get()
        #expect(named.algorithm(for: nil) == .es256 && named.algorithm(for: "b") == nil)
        let two = try Self.result(Issuer.keySet([Issuer.rsa.jwk(#","kid":"a""#), Issuer.p256.jwk(#","kid":"b""#)]))
            .get()
        #expect(two.count == 2 && two.algorithm(for: nil) == nil)
        // A second key without id does not turn the first one into the only one.
        let mixed = try Self.result(Issuer.keySet([Issuer.rsa.jwk(#","kid":"a""#), Issuer.p256.jwk()])).get()
        #expect(mixed.count == 1 && mixed.algorithm(for: nil) == nil && mixed.algorithm(for: "a") == .rs256)
    }

    @Test func `keys of several algorithms may have one id`() throws {
        let keys = [
            Issuer.rsa.jwk(#","kid":"a","alg":"RS256""#), Issuer.rsa.jwk(#","kid":"a","alg":"PS256""#),
            Issuer.p256.jwk(#","kid":"a""#), Issuer.p256.jwk(#","kid":"b""#),
        ]
        let set = try Issuer.keys(Issuer.keySet(keys))
        #expect(set.count == 4 && set.skipped.isEmpty)
        let verifier = JWTVerifier(rules: Issuer.rules(), keys: set)
        #expect(verifier.rejection(Issuer.token(#"{"alg":"RS256","kid":"a"}"#, by: Issuer.rsa)) == nil)
        #expect(verifier.rejection(Issuer.token(#"{"alg":"PS256","kid":"a"}"#, by: Issuer.rsa, isPSS: true)) == nil)
        #expect(verifier.rejection(Issuer.token(#"{"alg":"ES256","kid":"a"}"#)) == nil)
        #expect(verifier.rejection(Issuer.token(#"{"alg":"RS256","kid":"b"}"#, by: Issuer.rsa)) == .otherAlgorithm)
        #expect(verifier.rejection(Issuer.token(#"{"alg":"EdDSA","kid":"a"}"#)) == .otherAlgorithm)
        // A token of one algorithm is never verified with the key of another one.
        #expect(
            verifier.rejection(Issuer.token(#"{"alg":"RS256","kid":"a"}"#, by: Issuer.rsa, isPSS: true)) == .signature)
        #expect(verifier.rejection(Issuer.token(#"{"alg":"ES256"}"#)) == .missingKeyID)
    }

    private static let good = Issuer.p256.jwk(#","kid":"a""#)

    @Test(arguments: [
        ("", "is not a JWK set"), ("[]", "is not a JWK set"), ("null", "is not a JWK set"),
        (#"{"keys":["#, "is not a JWK set"), (Issuer.keySet([good]) + "x", "is not a JWK set"),
        ("\u{feff}" + Issuer.keySet([good]), "it is no JSON object in UTF-8"), ("{}", #"has no array "keys""#),
        (#"{"keys":{}}"#, #"has no array "keys""#), (#"{"keys":null}"#, #"has no array "keys""#),
        (good, #"has no array "keys""#),
        (#"{"keys":[1]}"#, "has no key that can be used (key 1 is not used: it is no object)"),
        (#"{"keys":[],"keys":[\#(good)]}"#, "is not a JWK set"),
        (#"{"keys":[{"kty":"EC","kty":"RSA"}]}"#, "key 1 has a member twice"),
        (#"{"keys":[{"kty":"EC","kt\u0079":"RSA"}]}"#, "key 1 has a member twice"),
        (Issuer.keySet([String](repeating: good, count: 101)), "it has 101 keys"),
        (Issuer.keySet([good, Issuer.rsa.jwk(#","kid":"b","d":"AA""#)]), "private part of key 2 (member d)"),
        (Issuer.keySet([Issuer.p384.jwk(#","d":"AA","use":"enc""#)]), "private part of key 1 (member d)"),
        (Issuer.keySet([Issuer.ed25519.jwk(#","d":"AA""#)]), "private part of key 1 (member d)"),
        (Issuer.keySet([Issuer.rsa.jwk(#","qi":"""#)]), "private part of key 1 (member qi)"),
        (#"{"keys":[]}"#, "has no key; give"),
        (#"{"keys":[{"kty":"oct","kid":"s"}]}"#, "(key 1 (kid s) is not used: it is symmetric"),
    ])
    func `a set that is unsafe or empty is refused as a whole`(_ text: String, _ reason: String) {
        #expect(Self.refusal(text)?.contains(reason) == true)
    }

    @Test func `a token may be signed with any of the keys of its id and algorithm`() throws {
        let set = try Self.result(Issuer.keySet([Self.good, Issuer.stranger.jwk(#","kid":"a""#)])).get()
        let verifier = JWTVerifier(rules: Issuer.rules(), keys: set)
        for key in [Issuer.p256, Issuer.stranger] {
            #expect(verifier.rejection(Issuer.token(#"{"alg":"ES256","kid":"a"}"#, by: key)) == nil)
        }
        #expect(
            verifier.rejection(Issuer.token(#"{"alg":"ES256","kid":"a"}"#, by: SigningKey(.ellipticCurve("P-256"))))
                == .signature)
    }

    @Test func `no text of an error has a key id that could break a log`() {
        let keyID = #"a\nb\u001b[0m<script>"#
        let refusal = Self.refusal(#"{"keys":[{"kty":"oct","kid":"\#(keyID)"}]}"#)
        #expect(refusal?.contains("(key 1 is not used: it is symmetric") == true)
    }
}
