#if TokenRefresh
import Cryptography
import Testing
import TokenStore

@testable import TokenRefresh

extension RefreshProvider {
    static func test(_ kind: Kind, clientID: String = "4711", secret: String? = "s") -> RefreshProvider {
        RefreshProvider(
            kind, url: "https://p.example/token", clientID: clientID, readSecret: { secret.map(SecretText.init) })
    }
}

/// The client library's dictionary, with the members that tests change.
private func dictionary(
    _ expiration: String = "2026-03-01T00:00:00.000+0000", refreshed: String = "2026-01-01T00:00:00.000+0000",
    more: String = ""
) -> String {
    """
    {"com.facebook.sdk:TokenInformationExpirationDateKey":"\(expiration)",\
    "com.facebook.sdk:TokenInformationPermissionsKey":["public_profile","email"],\
    "com.facebook.sdk:TokenInformationRefreshDateKey":"\(refreshed)",\
    "com.facebook.sdk:TokenInformationTokenKey":"EAAold"\(more)}
    """
}

private func token(
    _ info: String, _ kind: RefreshProvider.Kind, writtenAt: Int64 = 1_000_000
) -> RefreshableToken? {
    RefreshableToken(Array(info.utf8), writtenAt: writtenAt, by: .test(kind))
}

private func tokens(_ answer: String) throws -> ProviderTokens {
    let members = try #require(JSONMembers(Array(answer.utf8)))
    return try #require(ProviderTokens(members))
}

private func members(_ count: Int) -> String { (0..<count).map { "\"\($0)\":0" }.joined(separator: ",") }

private func nested(_ depth: Int) -> String {
    String(repeating: "[", count: depth) + String(repeating: "]", count: depth)
}

/// 2026-01-01 and 2026-03-01.
private let (january, march): (Int64, Int64) = (1_767_225_600, 1_772_323_200)

@Suite struct RefreshableTokenTests {
    @Test(
        arguments: [
            "", "{}", "no JSON", #"{"access_token":"a"}"#, #"{"access_token":"a","refresh_token":""}"#,
            #"{"access_token":"a","refresh_token":null}"#, #"{"access_token":"","refresh_token":"r"}"#,
            #"{"access_token":7,"refresh_token":"r"}"#, #"{"refresh_token":"r"}"#, dictionary(),
            #"{"access_token":"a","access_token":"b","refresh_token":"r"}"#,
            #"{"access_token":"a","refresh_token":"é"}"#, #"{"access_token":"a","refresh_token":"r\u0000"}"#,
            #"{"access_token":"a","refresh_token":"r\n"}"#, #"{"access_token":"a","refresh_token":"r\u007f"}"#,
        ]
    )
    func `a token info without an access token and a refresh token of printable characters is left alone`(
        _ info: String
    ) {
        #expect(token(info, .oauth2Post) == nil)
    }

    @Test func `for Facebook, the SDK's dictionary is enough, unless it is that of another app`() {
        #expect(token(dictionary(), .facebook) != nil)
        #expect(token(#"{"access_token":"a","refresh_token":"r"}"#, .facebook) == nil)
        for (value, isOurs) in [
            ("\"4711\"", true), ("4711", true), ("null", true), ("\"4712\"", false), ("4712", false),
        ] {
            let more = ",\"com.facebook.sdk:TokenInformationAppIDKey\":\(value)"
            #expect((token(dictionary(more: more), .facebook) != nil) == isOurs)
        }
    }

    @Test(
        arguments: [
            (#""expires_in":1000"#, 1_000_900), (#""expires_in":"1000""#, 1_000_900), (#""expires_in":0"#, 1_000_000),
            (#""expires_at":1700000000000,"expires_in":1000"#, 1_699_999_900),
            (#""expires_at":"2026-03-01T00:00:00Z""#, 1_595_190_880), (#""expires_at":2000000"#, 1_900_000),
            (#""expires_at":2000000,"expires_in":1000"#, 1_999_900),
            (#""x":1"#, nil), (#""expires_in":null"#, nil), (#""expires_in":-1"#, nil),
        ] as [(String, Int64?)]
    )
    func `a token is due a tenth of its life before its end, counted from its writing`(_ member: String, _ due: Int64?)
        throws
    {
        let read = try #require(token("{\"access_token\":\"a\",\"refresh_token\":\"r\",\(member)}", .oauth2))
        #expect(read.dueAt == due)
        if let due { #expect(read.hasExpired(at: due) == member.hasSuffix(":0")) }
    }

    @Test func `a token of Facebook is due a tenth before its end, and not on its first day`() throws {
        let usual = try #require(token(dictionary(), .facebook))
        #expect(usual.dueAt == march - (march - january) / 10)
        let short = try #require(token(dictionary("2026-01-01T02:00:00.000+0000"), .facebook))
        #expect(short.dueAt == january + 7_200)
        let day = try #require(token(dictionary("2026-01-02T01:00:00.000+0000"), .facebook))
        #expect(day.dueAt == january + 86_400)
        #expect(try #require(token(dictionary("1448-01-01T00:00:00.000+0000"), .facebook)).dueAt == nil)
        #expect(try #require(token(dictionary("4001-01-01T00:00:00.000+0000"), .facebook)).dueAt ?? 0 > march)
    }

    @Test func `a mark is the lease of the client library, and goes without a trace`() throws {
        for info in [dictionary(), #"{ "access_token":"EAAold", "refresh_token":"r" }"#] {
            let kind: RefreshProvider.Kind = info.contains("access_token") ? .oauth2 : .facebook
            let plain = try #require(token(info, kind))
            #expect(plain.mark == nil)
            let marked = String(decoding: plain.marked(by: "server-1"), as: UTF8.self)
            // The client library's form: SHA-256 of the access token, and whose lease it is.
            let digest = "bd25e037e4bf356d8d201a0917e87c4bb685d382bbdbb9cdc8009325d318eb38"
            #expect(marked.contains(",\"TokenCacheClient:RefreshLease\":\"\(digest) server-1\""))
            let read = try #require(token(marked, kind))
            #expect(read.mark == .underWay && read.isSame(as: plain))
            #expect(read.unmarked == Array(info.utf8))
            let spent = try #require(token(String(decoding: read.markedAsSpent, as: UTF8.self), kind))
            #expect(spent.mark == .spent && spent.unmarked == Array(info.utf8))
            // An app may copy the member to its next token.
            let next = marked.replacing("EAAold", with: "EAAnew")
            #expect(try #require(token(next, kind)).mark == nil)
        }
    }

    @Test(
        arguments: [
            (
                #"{ "access_token":"a", "refresh_token" : "r","expires_in":60,"x":[1] }"#,
                #"{"access_token":"b","token_type":"Bearer","expires_in":3600,"refresh_token":"s","scope":"x"}"#,
                #"{ "access_token":"b", "refresh_token" : "s","expires_in":3600,"x":[1] }"#
            ),
            (
                #"{"access_token":"a","refresh_token":"r","expires_at":5,"scope":"x y","token_type":"bearer"}"#,
                #"{"access_token":"b","expires_in":"100","scope":"x","token_type":"Bearer"}"#,
                #"{"access_token":"b","refresh_token":"r","expires_at":1100,"scope":"x","token_type":"Bearer","expires_in":"100"}"#
            ),
            (
                #"{"access_token":"a","refresh_token":"r","expires_in":60,"expires_at":5}"#,
                #"{"access_token":"<b>","refresh_token":""}"#,
                #"{"access_token":"\u003cb>","refresh_token":"r","expires_in":60,"expires_at":1060}"#
            ),
            (
                #"{"access_token":"a","refresh_token":"r","expires_in":60}"#,
                #"{"access_token":"b","refresh_token":null,"expires_in":0}"#,
                #"{"access_token":"b","refresh_token":"r","expires_in":60}"#
            ),
            // Nobody knows the new token's lifetime, so that it never becomes due.
            (
                #"{"access_token":"a","refresh_token":"r","expires_at":5}"#,
                #"{"access_token":"b"}"#, #"{"access_token":"b","refresh_token":"r"}"#
            ),
            (
                #"{"access_token":"a","refresh_token":"r","expires_in":0,"expires_at":2000}"#,
                #"{"access_token":"b"}"#, #"{"access_token":"b","refresh_token":"r"}"#
            ),
            (
                #"{"access_token":"a","refresh_token":"r","expires_in":0,"expires_at":5}"#,
                #"{"access_token":"b","expires_at":3000}"#,
                #"{"access_token":"b","refresh_token":"r","expires_in":2000,"expires_at":3000}"#
            ),
            // Members that both have are taken from the answer, and a date keeps its form.
            (
                #"{"access_token":"a","refresh_token":"r","expires_in":60,"created_at":5,"mine":7}"#,
                #"{"access_token":"b","expires_in":60,"created_at":1000,"theirs":8}"#,
                #"{"access_token":"b","refresh_token":"r","expires_in":60,"created_at":1000,"mine":7}"#
            ),
            (
                #"{"access_token":"a","refresh_token":"r","expires_at":"2026-03-01T00:00:00Z"}"#,
                #"{"access_token":"b","expires_in":60}"#,
                #"{"access_token":"b","refresh_token":"r","expires_at":"1970-01-01T00:17:40.000+0000","expires_in":60}"#
            ),
            (
                #"{"access_token":"a","refresh_token":"r","expires_at":1700000000000}"#,
                #"{"access_token":"b","expires_in":60}"#,
                #"{"access_token":"b","refresh_token":"r","expires_at":1060000,"expires_in":60}"#
            ),
            (
                #"{"access_token":"a","refresh_token":"r","expires_at":"5"}"#,
                #"{"access_token":"b","expires_in":60}"#,
                #"{"access_token":"b","refresh_token":"r","expires_at":"1060","expires_in":60}"#
            ),
        ]
    )
    func `an answer changes its own members`(_ info: String, _ answer: String, _ expected: String) throws {
        let before = try #require(token(info, .oauth2))
        let marked = try #require(token(String(decoding: before.marked(by: "x"), as: UTF8.self), .oauth2))
        for state in [before, marked] {
            let after = state.refreshed(by: try tokens(answer), at: 1_000)
            #expect(String(decoding: after, as: UTF8.self) == expected)
        }
    }

    @Test func `the dictionary keeps its permissions, and gets dates in the SDK's form`() throws {
        let answer = try tokens(#"{"access_token":"EAAnew","token_type":"bearer","expires_in":5184000}"#)
        let after = try #require(token(dictionary(), .facebook)).refreshed(by: answer, at: march)
        #expect(
            String(decoding: after, as: UTF8.self)
                == dictionary("2026-04-30T00:00:00.000+0000", refreshed: "2026-03-01T00:00:00.000+0000")
                .replacing("EAAold", with: "EAAnew"))
        #expect(TokenExpiration.expiration(of: after.span) == march + 5_184_000)
        let unknown = try #require(token(dictionary(), .facebook))
            .refreshed(by: try tokens(#"{"access_token":"EAAnew"}"#), at: march)
        #expect(String(decoding: unknown, as: UTF8.self).contains("\"4001-01-01T00:00:00.000+0000\""))
    }

    @Test(
        arguments: [
            ("{\(members(127)),S}", "{\(members(127))}"),
            ("{\(members(10_000)),S,\"x\":1}", "{\(members(10_000)),\"x\":1}"),
            ("{S,\"a\":1,S,S}", "{\"a\":1}"), ("{ S , S }", "{ }"), (#" {"\u0072efresh_token" : "secret" } "#, " { } "),
            ("{\"a\":1,\"a\":[{\"b\":\"}\"}],S}", "{\"a\":1,\"a\":[{\"b\":\"}\"}]}"),
            ("{S,\"a\":\(nested(100_000))}", "{\"a\":\(nested(100_000))}"), (#"{"a":"\ud83d",S}"#, #"{"a":"\ud83d"}"#),
            (#"{"\ud83d":1,S}"#, #"{"\ud83d":1}"#), ("{\"refresh_token\":{\"a\":\"secret\"},\"a\":1}", "{\"a\":1}"),
            // No objects.
            ("", ""), ("{", "{"), (#"{"a":"b"#, #"{"a":"b"#), (#"["refresh_token"]"#, #"["refresh_token"]"#),
        ]
    )
    func `no reader of JSON finds a refresh token in what clients see`(_ info: String, _ expected: String) {
        for name in ["refresh_token", "TokenCacheClient:RefreshToken"] {
            let info = info.replacing("S", with: "\"\(name)\":\"secret\"")
            let shown = RefreshableToken.withoutRefreshTokens(Array(info.utf8))
            #expect(String(decoding: shown, as: UTF8.self) == expected)
        }
        // Some readers pass over bytes that are no UTF-8.
        let noText = RefreshableToken.withoutRefreshTokens(
            Array("{\"a\":\"".utf8) + [0xff] + Array("\",\"refresh_token\":1}".utf8))
        #expect(noText == Array("{\"a\":\"".utf8) + [0xff] + Array("\"}".utf8))
    }

    @Test func `the dictionary's refresh token and ID token are replaced`() throws {
        let more = #","TokenCacheClient:RefreshToken":"r","TokenCacheClient:IDToken":"i""#
        let before = try #require(token(dictionary(more: more), .oauth2))
        let answer = try tokens(#"{"access_token":"n","refresh_token":"s","id_token":"j","expires_in":10}"#)
        let after = String(decoding: before.refreshed(by: answer, at: march), as: UTF8.self)
        #expect(after.hasSuffix(#","TokenCacheClient:RefreshToken":"s","TokenCacheClient:IDToken":"j"}"#))
    }
}

@Suite struct RefreshRequestTests {
    private func texts(_ provider: RefreshProvider, _ info: String) throws -> [String] {
        let token = try #require(RefreshableToken(Array(info.utf8), writtenAt: 0, by: provider))
        let request = try #require(provider.request(for: token))
        return [request.url, request.body, request.authorization].map { String(decoding: $0.dropLast(), as: UTF8.self) }
    }

    private let info = #"{"access_token":"a","refresh_token":"r/+ %"}"#

    @Test func `a client shows its secret in the header, percent-encoded, or in the body`() throws {
        let body = "grant_type=refresh_token&refresh_token=r%2F%2B%20%25"
        #expect(
            try texts(.test(.oauth2, clientID: "a b", secret: "s:%+"), info) == [
                "https://p.example/token", body, "Authorization: Basic YSUyMGI6cyUzQSUyNSUyQg==",
            ])
        #expect(
            try texts(.test(.oauth2Post, clientID: "a b", secret: "s:%+"), info) == [
                "https://p.example/token", body + "&client_id=a%20b&client_secret=s%3A%25%2B", "",
            ])
        #expect(
            try texts(.test(.oauth2, secret: nil), info) == [
                "https://p.example/token", body + "&client_id=4711", "",
            ])
    }

    @Test func `Facebook is asked as its documentation says`() throws {
        #expect(
            try texts(.test(.facebook), dictionary()) == [
                """
                https://p.example/token?grant_type=fb_exchange_token&client_id=4711&client_secret=s&fb_exchange_token=EAAold
                """, "", "",
            ])
    }
}
#endif
