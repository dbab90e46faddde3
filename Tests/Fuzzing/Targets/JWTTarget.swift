import JWT

extension FuzzTarget {
    /// Tokens and key sets of strangers.
    ///
    /// The first byte of an input says what the rest is: a token (T), the header (H) or the
    /// claims (C) of a signed one, or a key set (K).
    static let jwt = FuzzTarget(
        "jwt",
        words: [
            ".", "=", "-", "_", "A", "{", "}", "[", "]", "\"", ",", ":", "\\u0000", "\\u0061", "null", "1e9",
            "1800000300.5",
            "\"alg\":\"none\"", "\"alg\":\"HS256\"", "\"alg\":\"EdDSA\"", "\"typ\":\"JWT\"", "\"kid\":\"ed\"",
            "\"crit\":[]",
            "\"iss\":\"https://id.example.com\"", "\"aud\":[\"api\"]", "\"sub\":\"a<b\"", "\"exp\":", "\"nbf\":",
            "\"iat\":",
            "\"cnf\":{\"x5t#S256\":\"", "{\"keys\":[", "\"kty\":\"RSA\"", "\"kty\":\"oct\"", "\"d\":\"AA\"",
            "\"use\":\"enc\"",
            "\"key_ops\":[\"sign\"]", "\"n\":\"AQAB\"", "\"e\":\"AQAB\"", "\"crv\":\"P-521\"", "\"kid\":\"\"",
        ]
    ) { input in
        let text = Array(input.dropFirst())
        switch input.first {
        case UInt8(ascii: "T"): try verify(text)
        case UInt8(ascii: "H"): try readHeader(text)
        case UInt8(ascii: "C"): try readClaims(text)
        case UInt8(ascii: "K"): try readKeySet(text)
        default: break
        }
    }

    private static let rules = JWTRules(
        issuer: "https://id.example.com", audiences: ["api"], userClaim: "sub"
    )

    private static let verifier: JWTVerifier = {
        guard
            let keys = try? JWTKeySet(
                parsing: Array(SignedTokens.keySet.utf8).span, of: "jwks")
        else { preconditionFailure("the keys are usable") }
        return JWTVerifier(rules: rules, keys: keys)
    }()

    /// The tokens that were signed are accepted, and no others.
    private static func verify(_ token: [UInt8]) throws {
        let found = try? verifier.verify(token.span, at: 1_800_000_000)
        try compare(found?.user, SignedTokens.all.contains(token.text.string) ? Array("alice".utf8) : nil, "the user")
    }

    private static func members(_ text: [UInt8]) -> [String: JSONModel]? {
        guard String(validating: text, as: UTF8.self) != nil,
            case .object(let members)? = JSONModel.value(of: text.text)
        else { return nil }
        let values = Dictionary(members.map { ($0.name.string, $0.value) }) { $1 }
        return values.count == members.count ? values : nil
    }

    private static func string(_ value: JSONModel?) -> String? {
        if case .string(let text)? = value { text.string } else { nil }
    }

    private static func readHeader(_ text: [UInt8]) throws {
        guard let header = try? JWTHeader(text.span) else { return }
        guard let members = members(text) else { throw Mismatch("the header is no object with each name once") }
        let algorithm = string(members["alg"])
        let names = header.algorithm == .edDSA ? ["EdDSA", "Ed25519"] : [header.algorithm.rawValue]
        try require(names.contains(algorithm ?? ""), "alg is \(algorithm ?? "missing")")
        try compare(header.keyID?.text.string, string(members["kid"]), "the key's id")
        let type = string(members["typ"])?.lowercased() ?? "jwt"
        try require(["at+jwt", "jwt", "application/at+jwt", "application/jwt"].contains(type), "typ is \(type)")
        for name in ["enc", "crit", "b64", "cty"] { try require(members[name] == nil, "there is \(name)") }
    }

    private static func readClaims(_ text: [UInt8]) throws {
        guard let token = try? JWTClaims(text).token(rules) else { return }
        guard let members = members(text) else { throw Mismatch("the claims are no object with each name once") }
        try compare(string(members["iss"]), rules.issuer, "the issuer")
        switch members["aud"] {
        case .string(let audience): try compare(audience.string, "api", "the audience")
        case .array(let audiences):
            try require(audiences.contains { string($0) == "api" }, "it is for another audience")
        default: throw Mismatch("there is no audience")
        }
        try compare(string(members["sub"]), token.user.text.string, "the user")
        try require(
            !token.user.isEmpty && token.user.count <= JWTRules.userLimit && !token.user.contains(0)
                && !token.user.contains(UInt8(ascii: "<")), "the user is \(token.user)")
        guard case .number(let expiry)? = members["exp"], let seconds = Double(expiry.string) else {
            throw Mismatch("there is no exp")
        }
        try compare(token.expiresAt, Int64(seconds.rounded(.down)) + JWTRules.leeway, "the expiry")
        var start: Double = 0
        if members["nbf"] != nil {
            guard case .number(let time)? = members["nbf"], let seconds = Double(time.string) else {
                throw Mismatch("nbf is no number")
            }
            start = seconds.rounded(.up)
        }
        try compare(token.validFrom, Int64(start) - JWTRules.leeway, "the time from which it counts")
        try require(members["cnf"] == nil, "it is bound to a key")
    }

    private static func readKeySet(_ text: [UInt8]) throws {
        guard let keys = try? JWTKeySet(parsing: text.span, of: "jwks") else { return }
        guard let members = members(text), case .array(let entries)? = members["keys"] else {
            throw Mismatch("the set is no object with keys")
        }
        try compare(keys.count + keys.skipped.count, entries.count, "the keys, used and skipped")
        try require(keys.count > 0, "there is no key")
        for case .object(let key) in entries {
            // Keys of other types are skipped, whatever their members mean.
            let isAsymmetric = key.contains {
                $0.name.string == "kty" && ["RSA", "EC", "OKP"].contains(string($0.value))
            }
            let isPrivate = isAsymmetric && key.contains { $0.name.string == "d" }
            try require(!isPrivate, "a private key is accepted")
        }
    }
}

/// Public keys and tokens that their private keys, which nobody has any more, have signed.
enum SignedTokens {
    static let keySet = #"""
        {"keys":[{"kty":"EC","crv":"P-256","kid":"ec","alg":"ES256","use":"sig",
        "x":"SWxyIZmfDNtnC7qJeyuDyBXLg-Vtfue6TTqmvp8qUOM",
        "y":"ogtphlAjnvBI_BnWAg0zfXCMrvqWaAQQzsLCGGnL5Go"},
        {"kty":"OKP","crv":"Ed25519","kid":"ed",
        "x":"HmzJhi1p9MZY-NTXKrEWwM-eOTR6W64UQ9eOCbIt8vY"}]}
        """#

    static let all = [
        "eyJhbGciOiJFUzI1NiIsInR5cCI6ImF0K2p3dCIsImtpZCI6ImVjIn0.eyJpc3MiOiJodHRwczovL2lkLmV4YW1wbGUuY29t"
            + "IiwiYXVkIjpbImFwaSIsImIiXSwic3ViIjoiYWxpY2UiLCJleHAiOjE4MDAwMDAzMDAsImlhdCI6MTc5OTk5OTk5MH0.a72j"
            + "YkiSXdv22JpBlBGT57B1TxWVSDyFdPL-cV0U2qpbVHOCp0VWS68QNxeHbCfAPkZZimJWEBpuiqQQThC5XQ",
        "eyJhbGciOiJFZERTQSIsImtpZCI6ImVkIn0.eyJpc3MiOiJodHRwczovL2lkLmV4YW1wbGUuY29tIiwiYXVkIjpbImFwaSIs"
            + "ImIiXSwic3ViIjoiYWxpY2UiLCJleHAiOjE4MDAwMDAzMDAsImlhdCI6MTc5OTk5OTk5MH0.QnixeyrUqF93wvxlpWO-Qnxw"
            + "hedHMGHbyByY3Yof1BX5QwAwdFoG-MZeJpVX0rtGhkLoZa4V99YownVv3a-NBw",
    ]
}
