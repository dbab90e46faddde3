import Foundation
import Testing

@testable import TokenCacheClient

private let token = TokenInformation(
    token: "CAAC&+ %<é", refreshDate: Date(timeIntervalSince1970: 1_700_000_000), permissions: ["email"], userID: "7")

private func url(_ text: String = "https://tokens.example.com/token.php") throws -> URL {
    try #require(URL(string: text))
}

private func remote(
    _ identity: RemoteTokenCache.Identity = .uniqueID("a b+c/é"), _ transport: any Transport,
    looksForSpaces: Bool = false,
    retries: RetryPolicy = RetryPolicy(), clock: HastyClock = HastyClock()
) throws -> RemoteTokenCache {
    try RemoteTokenCache(
        url: url(), identity: identity, transport: transport, retries: retries, looksForSpaces: looksForSpaces,
        clock: clock, random: { 1 })
}

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

@Suite struct RemoteTokenCacheTests {
    @Test func `requests are escaped, and answers read`() async throws {
        let transport = ScriptedTransport { request, _ in
            request.answer(request.method == "GET" ? Answers.found(token.text) : Answers.stored)
        }
        let cache = try remote(.uniqueID("a b+c/é~"), transport)
        #expect(try await cache.fetch() == token)
        try await cache.cache(token)
        try await cache.clear()
        let requests = transport.requests
        #expect(requests.map(\.method) == ["GET", "POST", "POST"])
        #expect(requests[0].url.absoluteString == "https://tokens.example.com/token.php?unique_id=a%20b%2Bc%2F%C3%A9~")
        #expect(requests[1].url.absoluteString == "https://tokens.example.com/token.php")
        #expect(requests[1].text.hasPrefix("unique_id=a%20b%2Bc%2F%C3%A9~&token_info=%7B%22com.facebook.sdk%3A"))
        #expect(requests[1].text.allSatisfy { $0.isASCII && !"+<\" ".contains($0) })
        #expect(decoded(requests[1].text, "token_info") == token.text)
        #expect(requests[1].headers["Content-Type"] == "application/x-www-form-urlencoded")
        #expect(requests[2].text == "unique_id=a%20b%2Bc%2F%C3%A9~&token_info=%7B%7D")
        #expect(requests.allSatisfy { $0.headers["Authorization"] == nil && $0.headers["If-Match"] == nil })
    }

    @Test func `a session is sent in a header only, a new one for each request`() async throws {
        let transport = ScriptedTransport { request, _ in
            request.answer(request.method == "GET" ? Answers.nothing : Answers.stored)
        }
        let number = Locked(0)
        let cache = try remote(
            .session {
                number.withLock { number in
                    number += 1
                    return "tcs_\(number)"
                }
            }, transport)
        #expect(try await cache.fetch() == nil)
        try await cache.clear()
        #expect(transport.requests.map { $0.headers["Authorization"] } == ["Bearer tcs_1", "Bearer tcs_2"])
        #expect(transport.requests[0].url == (try url()))
        #expect(transport.requests[1].text == "token_info=%7B%7D")
    }

    @Test(arguments: ["", "a b", "a\r\nX: y", "é"])
    func `a session that cannot stand in a header is refused`(session: String) async throws {
        let cache = try remote(
            .session { session }, ScriptedTransport { request, _ in request.answer(Answers.nothing) })
        guard case .invalidID = await failure(cache) else { throw TokenCacheError.timedOut }
    }

    @Test func `an error of the app's closure is thrown as it is`() async throws {
        struct SignedOutOfTheApp: Error {}
        let cache = try remote(
            .session { throw SignedOutOfTheApp() }, ScriptedTransport { request, _ in request.answer(Answers.nothing) })
        await #expect(throws: SignedOutOfTheApp.self) { try await cache.fetch() }
    }

    @Test(arguments: [
        "", "a\u{0}b", "a<b", String(repeating: "é", count: 513), "tcs_" + String(repeating: "x", count: 43),
    ])
    func `ids that the server would refuse or change are refused`(id: String) throws {
        #expect {
            try remote(.uniqueID(id), .urlSession)
        } throws: { error in
            if case TokenCacheError.invalidID = error { true } else { false }
        }
        _ = try remote(.uniqueID(String(repeating: "é", count: 512)), .urlSession)
    }

    @Test(arguments: ["ftp://a/b", "file:///a", "https:///a", "/token", "https://a/b?c=d", "https://a/b#c"])
    func `URLs that are none of a server are refused`(text: String) throws {
        #expect(throws: TokenCacheError.invalidURL) {
            try RemoteTokenCache(url: url(text), identity: .uniqueID("a"))
        }
    }

    @Test(arguments: [
        Answers.nothing, Answers.found(""), Answers.found("{}"), Answers.found(" "),
        Answers.found(#"{"com.facebook.sdk:TokenInformationTokenKey":" "}"#),
    ])
    func `surely none`(answer: String) async throws {
        #expect(
            try await remote(.uniqueID("a"), ScriptedTransport { request, _ in request.answer(answer) }).fetch() == nil)
    }

    @Test(arguments: [
        "", "<html><body>Welcome to the hotel</body></html>", "{}", "[]", "null", #"{"status":true,"token_info":"{}"}"#,
        #"{"status":"true"}"#, #"{"status":"true","token_info":null}"#, #"{"status":"true","token_info":{}}"#,
        #"{"status":"true","token_info":"{"#, #"{"status":"false"}"#, #"{"status":"false","errorCode":50002}"#,
        #"{"status":"TRUE","token_info":"{}"}"#, Answers.nothing + "x", #"{"status":"true","token_info":"\ud8"}"#,
    ])
    func `an answer that is not the server's is unknown`(answer: String) async throws {
        let cache = try remote(.uniqueID("a"), ScriptedTransport { request, _ in request.answer(answer) })
        guard case .unexpectedAnswer = await failure(cache) else {
            Issue.record("not unexpected")
            return
        }
    }

    @Test func `a token info that cannot be read is unknown`() async throws {
        let cache = try remote(
            .uniqueID("a"), ScriptedTransport { request, _ in request.answer(Answers.found(#"{"a":"cut at "#)) })
        guard case .unreadable = await failure(cache) else {
            Issue.record("not unreadable")
            return
        }
    }

    @Test func `statuses are errors`() async throws {
        let expected: [(Int, TokenCacheError)] = [
            (301, .redirected(status: 301)), (302, .redirected(status: 302)), (307, .redirected(status: 307)),
            (308, .redirected(status: 308)), (401, .unauthorized), (403, .forbidden),
            (404, .refused(status: 404, code: "50002")), (204, .refused(status: 204, code: "50002")),
            (500, .refused(status: 500, code: "50002")), (429, .unavailable(status: 429, retryAfter: .seconds(7))),
            (503, .unavailable(status: 503, retryAfter: .seconds(7))),
            // As for an id without a token, if that had no Retry-After.
            (200, .unavailable(status: 200, retryAfter: .seconds(7))),
        ]
        for (status, error) in expected {
            let cache = try remote(
                .uniqueID("a"),
                ScriptedTransport { request, _ in
                    request.answer(Answers.nothing, status: status, headers: ["retry-AFTER": "7"])
                }, retries: RetryPolicy(attempts: 1))
            #expect(await failure(cache) == error, "\(status)")
        }
        let stranger = try remote(
            .uniqueID("a"),
            ScriptedTransport { request, _ in
                var answer = request.answer(Answers.nothing)
                answer.url = try url("http://tokens.example.com/token.php?unique_id=a")
                return answer
            })
        guard case .unexpectedAnswer = await failure(stranger) else { throw TokenCacheError.timedOut }
    }

    @Test func `a write that the server did not confirm is an error`() async throws {
        for answer in [Answers.notStored, Answers.nothing, "", "<html>", #"{"status":"maybe"}"#] {
            let cache = try remote(.uniqueID("a"), ScriptedTransport { request, _ in request.answer(answer) })
            await #expect(throws: TokenCacheError.self) { try await cache.cache(token) }
            await #expect(throws: TokenCacheError.self) { try await cache.clear() }
        }
    }

    // MARK: - Ids with a plus sign

    @Test func `the id with a space is asked for only when the app wants that`() async throws {
        let transport = ScriptedTransport { request, _ in
            request.answer(
                request.url.absoluteString.hasSuffix("=a%20b%20c") ? Answers.found(token.text) : Answers.nothing)
        }
        #expect(try await remote(.uniqueID("a+b+c"), transport).fetch() == nil)
        #expect(transport.requests.count == 1)
        #expect(try await remote(.uniqueID("a+b+c"), transport, looksForSpaces: true).fetch() == token)
        #expect(try await remote(.uniqueID("abc"), transport, looksForSpaces: true).fetch() == nil)
        #expect(transport.requests.count == 4)
    }

    // MARK: - Retries

    @Test func `what may be a moment's trouble is asked again, with growing waits`() async throws {
        let clock = HastyClock()
        let transport = ScriptedTransport { request, number in
            switch number {
            case 1: throw TokenCacheError.unreachable(code: -1004)
            case 2: return request.answer("<html>")
            case 3: return request.answer("", status: 503, headers: ["Retry-After": "3"])
            case 4: return request.answer("", status: 502)
            default: return request.answer(Answers.found(token.text))
            }
        }
        let cache = try remote(.uniqueID("a"), transport, retries: RetryPolicy(attempts: 5), clock: clock)
        #expect(try await cache.fetch() == token)
        #expect(clock.sleeps.withLock { $0 } == [.milliseconds(500), .seconds(1), .seconds(5), .seconds(4)])
    }

    @Test func `a write is sent again only if that cannot replace another device's`() async throws {
        let ambiguous: [@Sendable (TransportRequest) throws -> TransportResponse] = [
            { _ in throw TokenCacheError.timedOut }, { _ in throw TokenCacheError.unreachable(code: -1005) },
            { $0.answer("<html>") }, { $0.answer("", status: 502) },
        ]
        let clear: [@Sendable (TransportRequest) throws -> TransportResponse] = [
            { _ in throw TokenCacheError.unreachable(code: -1004) },
            { _ in throw TokenCacheError.unreachable(code: -1003) },
            { $0.answer("", status: 503) }, { $0.answer(Answers.notStored) },
        ]
        for (isClear, troubles) in [(false, ambiguous), (true, clear)] {
            for trouble in troubles {
                let transport = ScriptedTransport { request, number in
                    number == 1 ? try trouble(request) : request.answer(Answers.stored)
                }
                let cache = try remote(.uniqueID("a"), transport)
                if isClear {
                    try await cache.cache(token)
                } else {
                    await #expect(throws: TokenCacheError.self) { try await cache.cache(token) }
                }
                #expect(transport.requests.count == (isClear ? 2 : 1))
            }
        }
    }

    @Test func `what will not change is asked once`() async throws {
        for status in [301, 400, 401, 403, 404] {
            let transport = ScriptedTransport { request, _ in request.answer("", status: status) }
            _ = await failure(try remote(.uniqueID("a"), transport))
            #expect(transport.requests.count == 1, "\(status)")
        }
    }

    @Test func `a wait beyond the deadline is not begun`() async throws {
        let transport = ScriptedTransport { request, _ in
            request.answer("", status: 429, headers: ["Retry-After": "3600"])
        }
        #expect(
            await failure(try remote(.uniqueID("a"), transport))
                == .unavailable(status: 429, retryAfter: .seconds(3_600)))
        #expect(transport.requests.count == 1)
    }

    @Test func `the deadline ends a request that would last`() async throws {
        let transport = ScriptedTransport { _, _ in
            try await Task.sleep(for: .seconds(3_600))
            throw TokenCacheError.timedOut
        }
        let cache = try RemoteTokenCache(
            url: url(), identity: .uniqueID("a"), transport: transport,
            retries: RetryPolicy(deadline: .milliseconds(50)))
        #expect(await failure(cache) == .timedOut)
    }

    @Test func `a cancelled task stops waiting`() async throws {
        let transport = ScriptedTransport { _, _ in
            try await Task.sleep(for: .seconds(3_600))
            throw TokenCacheError.timedOut
        }
        let cache = try RemoteTokenCache(url: url(), identity: .uniqueID("a"), transport: transport)
        let task = Task { try await cache.fetch() }
        task.cancel()
        await #expect(throws: CancellationError.self) { try await task.value }
    }

    // MARK: - Versions

    private func session(_ transport: any Transport) throws -> RemoteTokenCache {
        try remote(.session { "tcs_a" }, transport)
    }

    @Test func `of two devices that refresh at once, the slower one learns of it`() async throws {
        let server = VersionedServer()
        let (a, b) = try (session(server.transport()), session(server.transport()))
        #expect(try await a.fetch() == nil)
        #expect(try await b.fetch() == nil)
        try await a.cache(token)
        var other = token
        other.token = "b"
        await #expect(throws: TokenCacheError.conflict(current: token)) { try await b.cache(other) }
        #expect(try await a.fetch() == token)
        // Knowing what it replaces, it may.
        try await b.cache(other)
        await #expect(throws: TokenCacheError.conflict(current: other)) { try await a.cache(token) }
        // Signing out needs no knowledge.
        try await b.clear()
        await #expect(throws: TokenCacheError.conflict(current: nil)) { try await a.cache(token) }
        try await a.cache(token)
    }

    @Test func `without a fetch before, a write replaces what is there`() async throws {
        let server = VersionedServer()
        try await session(server.transport()).cache(token)
        try await session(server.transport()).cache(token)
        #expect(server.row.withLock { $0.version } == 2)
    }

    @Test func `a write whose answer was lost does not conflict with itself`() async throws {
        let server = VersionedServer()
        let cache = try session(server.transport())
        try await cache.cache(token)
        var second = token
        second.token = "second"
        server.lost.withLock { $0 = [2] }
        try await cache.cache(second)
        #expect(server.row.withLock { $0.version } == 2)
        try await cache.cache(token)
    }

    @Test func `a server that wants a condition gets one`() async throws {
        let server = VersionedServer()
        try await session(server.transport()).cache(token)
        let inner = server.transport()
        let cache = try session(
            ScriptedTransport { request, number in
                let hasCondition = request.headers.keys.contains { $0.hasPrefix("If-") }
                if request.method == "POST", !hasCondition { return request.answer("{}", status: 428) }
                return try await inner.send(request)
            })
        try await cache.cache(token)
        #expect(server.row.withLock { $0.version } == 2)
    }

    @Test func `no error shows what is secret`() async throws {
        let cache = try remote(
            .session { "SECRET" },
            ScriptedTransport { request, _ in request.answer(Answers.found(#"{"SECRET":"#)) })
        let error = await failure(cache)
        #expect(error.map { "\($0) \(String(reflecting: $0))" }?.contains("SECRET") == false)
        for shown: Any in [
            try remote(.uniqueID("SECRET"), .urlSession), RemoteTokenCache.Identity.uniqueID("SECRET"),
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
