import Foundation
import Testing

@testable import TokenCacheClient

private let token = TokenInformation(
    token: "CAAC&+ %<é", refreshDate: Date(timeIntervalSince1970: 1_700_000_000), permissions: ["email"], userID: "7")

/// What a cache throws when it fetches; fails if it returns.
private func failure(_ cache: RemoteTokenCache) async -> TokenCacheError? {
    do {
        let found = try await cache.fetch()
        Issue.record("it returned \(found as Any)")
        return nil
    } catch {
        return error as? TokenCacheError
    }
}

#if canImport(Darwin)
private let isIPv6Known = true
#else
private let isIPv6Known = false
#endif

@Suite struct RemoteTokenCacheTests {
    @Test func `requests are escaped, and answers read`() async throws {
        let transport = ScriptedTransport { request, _ in
            request.answer(request.method == "GET" ? Answers.found(token.text) : Answers.stored)
        }
        let cache = try remote(.uniqueID("a b+c/é~"), transport)
        #expect(try await cache.fetch() == token)
        try await cache.store(token)
        try await cache.clear()
        let requests = transport.requests
        #expect(requests.map(\.method) == ["GET", "GET", "POST", "GET", "POST"])
        #expect(requests[0].url.absoluteString == "https://tokens.example.com/token.php?unique_id=a%20b%2Bc%2F%C3%A9~")
        #expect(requests[2].url.absoluteString == "https://tokens.example.com/token.php")
        #expect(requests[2].text.hasPrefix("unique_id=a%20b%2Bc%2F%C3%A9~&token_info=%7B%22com.facebook.sdk%3A"))
        #expect(requests[2].text.allSatisfy { $0.isASCII && !"+<\" ".contains($0) })
        #expect(decoded(requests[2].text, "token_info") == token.text)
        #expect(requests[2].headers["Content-Type"] == "application/x-www-form-urlencoded")
        #expect(requests[4].text == "unique_id=a%20b%2Bc%2F%C3%A9~&token_info=%7B%7D")
        #expect(requests.allSatisfy { $0.headers["Authorization"] == nil && $0.headers["If-Match"] == nil })
    }

    @Test func `a session is sent in a header only, a new one for each request`() async throws {
        let transport = ScriptedTransport { request, _ in
            request.answer(request.method == "GET" ? Answers.nothing : Answers.stored)
        }
        let number = Locked(0)
        let cache = try remote(
            .session { _ in
                number.withLock { number in
                    number += 1
                    return "tcs_\(number)"
                }
            }, transport)
        #expect(try await cache.fetch() == nil)
        try await cache.clear()
        #expect(transport.requests.map { $0.headers["Authorization"] } == (1...3).map { "Bearer tcs_\($0)" })
        #expect(transport.requests[0].url == (try url()))
        #expect(transport.requests[2].text == "token_info=%7B%7D")
    }

    @Test(arguments: ["", "a b", "a\r\nX: y", "é"])
    func `a session that cannot stand in a header is refused`(session: String) async throws {
        let cache = try remote(
            .session { _ in session }, ScriptedTransport { request, _ in request.answer(Answers.nothing) })
        guard case .invalidID = await failure(cache) else { throw TokenCacheError.timedOut }
    }

    @Test(arguments: [
        "", "a\u{0}b", "a<b", String(repeating: "é", count: 513), "tcs_" + String(repeating: "x", count: 43),
    ])
    func `ids that the server would refuse or change are refused`(id: String) throws {
        #expect {
            try remote(.uniqueID(id), URLSessionTransport.shared)
        } throws: { error in
            if case TokenCacheError.invalidID = error { true } else { false }
        }
        _ = try remote(.uniqueID(String(repeating: "é", count: 512)), URLSessionTransport.shared)
    }

    @Test(arguments: [
        ("https://a/b", true), ("HTTPS://a", true), ("http://localhost:1/b", true), ("http://127.0.0.1/b", true),
        ("http://[::1]:8080/b", isIPv6Known), ("https://[2001:db8::1]/b", isIPv6Known), ("ftp://a/b", false),
        ("file:///a", false), ("https:///a", false),
        ("/token", false), ("https://a/b?c=d", false), ("https://a/b#c", false), ("http://a/b", false),
        ("http://127.0.0.1.example.com/b", false), ("http://10.0.0.1/b", false),
        ("http://localhost.example.com/b", false), ("http://0127.0.0.1/b", false), ("http://127.0.0.01/b", false),
        ("http://127.0.0.256/b", false),
    ])
    func `URLs of servers are accepted, and plain ones of this machine`(text: String, isAccepted: Bool) throws {
        let cache = try? RemoteTokenCache(url: url(text), identity: .uniqueID("a"))
        #expect((cache != nil) == isAccepted)
        // Another transport may know more than URLSession.
        let other = ScriptedTransport { _, _ in throw TokenCacheError.timedOut }
        let hasOther = (try? RemoteTokenCache(url: url(text), identity: .uniqueID("a"), transport: other)) != nil
        #expect(hasOther == (isAccepted || text.contains("[")))
    }

    private enum Finding: Equatable {
        case none, unexpected, unreadable
        case error(TokenCacheError)
    }

    @Test func `an answer says surely that there is none, or it is unknown`() async throws {
        let sentence = "Could not read file contents or data empty."
        let findings: [(Finding, status: Int, [String])] =
            [
                (
                    .none, 200,
                    [
                        Answers.nothing, Answers.found(""), Answers.found("{}"), Answers.found(" "),
                        Answers.found(#"{"com.facebook.sdk:TokenInformationTokenKey":" "}"#),
                    ]
                ),
                (
                    .unexpected, 200,
                    [
                        "", "<html>", "{}", "[]", "null", #"{"status":true,"token_info":"{}"}"#, #"{"status":"true"}"#,
                        #"{"status":"true","token_info":null}"#, #"{"status":"true","token_info":{}}"#,
                        #"{"status":"true","token_info":"{"#, #"{"status":"false"}"#,
                        #"{"status":"false","errorCode":50002}"#, #"{"status":"TRUE","token_info":"{}"}"#,
                        Answers.nothing + "x", #"{"status":"true","token_info":"\ud8"}"#,
                    ]
                ),
                (.unreadable, 200, [Answers.found(#"{"a":"cut at "#)]),
                (.error(.refused(status: 200, code: "30001")), 200, [#"{"status":"false","errorCode":"30001"}"#]),
                (.error(.unauthorized(detail: sentence)), 401, [Answers.nothing]),
                (.error(.forbidden(detail: sentence)), 403, [Answers.nothing]),
            ] + [301, 302, 303, 307, 308].map { (.error(.redirected(status: $0)), $0, [Answers.nothing]) }
            + [204, 400, 404, 500, 502].map {
                (.error(.refused(status: $0, code: "50002", detail: sentence)), $0, [Answers.nothing])
            }
        for (finding, status, texts) in findings {
            for text in texts {
                let transport = ScriptedTransport { request, _ in request.answer(text, status: status) }
                let found: Finding
                do {
                    found = try await remote(transport).fetch() == nil ? .none : .unexpected
                } catch TokenCacheError.unexpectedAnswer {
                    found = .unexpected
                } catch TokenCacheError.unreadable {
                    found = .unreadable
                } catch {
                    found = .error(error as? TokenCacheError ?? .timedOut)
                }
                #expect(found == finding, "\(status) \(text)")
                #expect(transport.requests.count == 1)
            }
        }
        // Without Retry-After, the last one would be the answer for an id without a token.
        for status in [429, 503, 200] {
            let transport = ScriptedTransport { request, _ in
                request.answer(Answers.nothing, status: status, headers: ["retry-AFTER": "7"])
            }
            #expect(await failure(try remote(transport)) == .unavailable(status: status, retryAfter: .seconds(7)))
        }
    }

    @Test(arguments: [400, 401, 403, 404, 407, 412, 413, 428, 451, 502])
    func `an error that is not the contract's says nothing about the session or the request`(status: Int) async throws {
        for (text, challenge) in [
            ("", ""), ("<html>", "Basic"), (#"{"message":"Forbidden"}"#, ""), (Answers.stored, ""),
            ("<html>", "Bearer"),
        ] {
            let cache = try remote(
                .session { _ in "tcs_a" },
                ScriptedTransport { request, _ in
                    request.answer(text, status: status, headers: ["WWW-Authenticate": challenge])
                })
            let error = await failure(cache)
            // A proxy that authenticates refuses the session.
            #expect(error?.isPermanent == (status == 401 && challenge == "Bearer"), "\(text)")
        }
    }

    @Test(arguments: [
        ("0", 0), ("7", 7), ("3601", 3_600), ("99999999999999999999999", 3_600), ("-1", 0),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 60), ("Sunday, 06-Nov-94 08:49:37 GMT", 60), ("Sun Nov  6 08:49:37 1994", 60),
        ("Sun, 06 Nov 1994 08:00:00 GMT", 0), ("Fri, 06 Nov 2099 08:49:37 GMT", 3_600), ("soon", nil), ("nan", nil),
    ])
    func `Retry-After is a number or a date by the server's clock, and an hour at most`(text: String, seconds: Int?)
        async throws
    {
        let fields = ["Retry-After": text, "Date": "Sun, 06 Nov 1994 08:48:37 GMT"]
        let transport = ScriptedTransport { request, _ in request.answer("", status: 503, headers: fields) }
        let expected = TokenCacheError.unavailable(status: 503, retryAfter: seconds.map { .seconds($0) })
        #expect(await failure(try remote(transport)) == expected)
    }

    @Test func `a write that the server did not confirm is an error`() async throws {
        for answer in [Answers.notStored, Answers.nothing, "", "<html>", #"{"status":"maybe"}"#] {
            let cache = try remote(ScriptedTransport { request, _ in request.answer(answer) })
            await #expect(throws: TokenCacheError.self) { try await cache.store(token) }
            await #expect(throws: TokenCacheError.self) { try await cache.clear() }
        }
    }

    @Test func `a session that was refused is told to the app, and a new one is tried at once`() async throws {
        let valid = Locked("tcs_2")
        let transport = ScriptedTransport { request, _ in
            if request.headers["Authorization"] == "Bearer " + valid.current {
                return request.answer(Answers.nothing)
            }
            return request.answer(#"{"status":"false","errorMessage":"It has ended."}"#, status: 401)
        }
        let told = Locked<[String?]>([])
        let cache = try remote(
            .session { refused in
                told.withLock { $0.append(refused) }
                return refused == nil ? "tcs_1" : "tcs_2"
            }, transport)
        #expect(try await cache.fetch() == nil)
        #expect(told.current == [nil, "tcs_1"])
        valid.current = "none"
        #expect(await failure(cache) == .unauthorized(detail: "It has ended."))
        #expect(transport.requests.count == 4)
        // The same one again is not sent again.
        let stubborn = try remote(.session { _ in "tcs_1" }, transport)
        #expect(await failure(stubborn) == .unauthorized(detail: "It has ended."))
        #expect(transport.requests.count == 5)
        #expect(await failure(stubborn)?.description.hasSuffix(": It has ended.") == true)
    }

    @Test func `the URL of an answer may be written in another way`() async throws {
        for (asked, answered, isSame) in [
            ("https://Tokens.example.com", "https://tokens.example.com:443/?unique_id=a", true),
            ("https://tokens.example.com/a", "HTTPS://tokens.example.com/a?unique_id=a", true),
            ("https://tokens.example.com/a", "https://tokens.example.com/b?unique_id=a", false),
            ("https://tokens.example.com/a", "https://tokens.example.com:444/a?unique_id=a", false),
            ("https://tokens.example.com/a", "https://tokens.example.com/a?unique_id=b", false),
        ] {
            let transport = ScriptedTransport { request, _ in
                var answer = request.answer(Answers.found("{}"))
                answer.url = try url(answered)
                return answer
            }
            let cache = try RemoteTokenCache(
                url: url(asked), identity: .uniqueID("a"), transport: transport)
            let found = try? await cache.fetchVersion()
            #expect((found != nil) == isSame, "\(answered)")
        }
    }

    // MARK: - Waiting

    @Test func `the deadline ends a request that would last, and so does a cancelled task`() async throws {
        let transport = ScriptedTransport { _, _ in
            try await Task.sleep(for: .seconds(3_600))
            throw TokenCacheError.timedOut
        }
        let hasty = try RemoteTokenCache(
            url: url(), identity: .uniqueID("a"), transport: transport, timeout: .milliseconds(50))
        #expect(await failure(hasty) == .timedOut)
        let task = Task { try await remote(transport).fetch() }
        task.cancel()
        await #expect(throws: CancellationError.self) { try await task.value }
    }

    // MARK: - Versions

    private func session(_ transport: any Transport) throws -> RemoteTokenCache {
        try remote(.session { _ in "tcs_a" }, transport)
    }

    @Test(arguments: [true, false])
    func `a token without a date has the same one at each fetch, until there is another token`(hasVersions: Bool)
        async throws
    {
        let server = VersionedServer(hasVersions: hasVersions)
        let cache = try session(server.transport())
        for text in ["one", "two"] {
            server.put(#"{"com.facebook.sdk:TokenInformationTokenKey":"\#(text)"}"#)
            let first = try await cache.fetch()
            #expect(first?.token == text)
            for _ in 0..<3 { #expect(try await cache.fetch() == first) }
        }
        try await cache.store(token)
        #expect(try await cache.fetch() == token)
    }

    @Test func `of two devices that refresh at once, the slower one learns of it`() async throws {
        let server = VersionedServer()
        let (a, b) = try (session(server.transport()), session(server.transport()))
        #expect(try await a.fetch() == nil)
        #expect(try await b.fetch() == nil)
        try await a.store(token)
        var other = token
        other.token = "b"
        await #expect(throws: TokenCacheError.conflict(current: token)) { try await b.store(other) }
        #expect(try await a.fetch() == token)
        // Knowing what it replaces, it may.
        try await b.store(other)
        await #expect(throws: TokenCacheError.conflict(current: other)) { try await a.store(token) }
        // Signing out needs no knowledge.
        try await b.clear()
        await #expect(throws: TokenCacheError.conflict(current: nil)) { try await a.store(token) }
        try await a.store(token)
    }

    @Test func `a write whose answer was lost does not conflict with itself`() async throws {
        let server = VersionedServer()
        let cache = try session(server.transport())
        try await cache.store(token)
        var second = token
        second.token = "second"
        server.losesAnswers.current = true
        await #expect(throws: TokenCacheError.self) { try await cache.store(second) }
        server.losesAnswers.current = false
        try await cache.store(second)
        #expect(server.row.withLock { $0.version } == 2)
        try await cache.store(token)
    }

    @Test(.timeLimit(.minutes(30)))
    func `behind a proxy that makes entity tags weak, a device signs out all the same`() async throws {
        for isLayered in [false, true] {
            let server = VersionedServer()
            let inner = server.transport()
            let remote = try session(
                ScriptedTransport { request, number in
                    var response = try await inner.send(request)
                    response.headers["etag"] = response.headers["etag"].map { "W/" + $0 }
                    return response
                })
            let cache: any TokenCaching = isLayered ? layeredCache(remote) : remote
            try await cache.store(token)
            try await cache.clear()
            #expect(server.row.withLock { $0.text } == "{}")
        }
    }

    @Test(.timeLimit(.minutes(30)))
    func `signing out ends, though another device always writes first`() async throws {
        let server = VersionedServer()
        try await session(server.transport()).store(token)
        let inner = server.transport()
        let cache = try session(
            ScriptedTransport { request, number in
                if request.method == "POST" { server.row.withLock { $0.version += 1 } }
                return try await inner.send(request)
            })
        await #expect(throws: TokenCacheError.unavailable(status: 412, retryAfter: nil)) { try await cache.clear() }
    }

    @Test func `a server that wants a condition gets one`() async throws {
        let server = VersionedServer()
        try await session(server.transport()).store(token)
        let inner = server.transport()
        let cache = try session(
            ScriptedTransport { request, number in
                let hasCondition = request.headers.keys.contains { $0.hasPrefix("If-") }
                if request.method == "POST", !hasCondition {
                    return request.answer(Answers.conditionFailed, status: 428)
                }
                return try await inner.send(request)
            })
        try await cache.store(token)
        #expect(server.row.withLock { $0.version } == 2)
    }

    @Test func `no error shows what is secret`() async throws {
        let cache = try remote(
            .session { _ in "SECRET" },
            ScriptedTransport { request, _ in request.answer(Answers.found(#"{"SECRET":"#)) })
        let error = await failure(cache)
        #expect(error.map { "\($0) \(String(reflecting: $0))" }?.contains("SECRET") == false)
        for shown: Any in [
            try remote(.uniqueID("SECRET"), URLSessionTransport.shared), RemoteTokenCache.Identity.uniqueID("SECRET"),
            LocalTokenCache(.memory, user: "SECRET"),
            TransportRequest(
                method: "POST", url: try url("https://tokens.example.com/t?SECRET"),
                headers: ["Authorization": "SECRET"],
                body: Data("SECRET".utf8), timeout: .zero),
            TransportResponse(url: try url(), status: 200, headers: ["a": "SECRET"], body: Data("SECRET".utf8)),
        ] {
            var dumped = ""
            dump(shown, to: &dumped)
            #expect(!"\(shown) \(String(reflecting: shown)) \(dumped)".contains("SECRET"))
        }
        let conflict = TokenCacheError.conflict(current: TokenInformation(token: "SECRET"))
        #expect(!"\(conflict) \(String(reflecting: conflict))".contains("SECRET"))
        var dumped = ""
        dump(conflict, to: &dumped)
        #expect(!dumped.contains("SECRET"))
    }
}
