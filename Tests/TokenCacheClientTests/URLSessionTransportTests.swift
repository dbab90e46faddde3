import Foundation
import Testing

@testable import TokenCacheClient

private func remote(_ server: LoopbackServer, timeout: Duration = .seconds(3_600)) throws -> RemoteTokenCache {
    // Schemes may be in capitals (RFC 3986, section 3.1), also where URLSession does not know them.
    let url = try url("HTTP://127.0.0.1:\(server.port)/token.php")
    return try RemoteTokenCache(url: url, identity: .session { _ in "tcs_a" }, timeout: timeout)
}

/// What URLSession does in ways of its own, above all on Linux.
@Suite struct URLSessionTransportTests {
    @Test func `a write arrives whole, though the server closes a kept connection just then`() async throws {
        let server = try LoopbackServer { request, _ in
            guard request.hasPrefix("GET") else { return [LoopbackServer.answer(Answers.stored)] }
            return [
                LoopbackServer.answer(
                    Answers.found("{}"), fields: "ETag: \"1\"\r\nSet-Cookie: a=b\r\n", connection: "keep-alive"),
                .keepUntilNextRequest,
            ]
        }
        defer { server.end() }
        // URLSession repeats such a write on a new connection, on Linux without its body.
        let cache = try remote(server, timeout: .seconds(60))
        _ = try await cache.fetch()
        try await cache.clear()
        #expect(server.requests.last?.hasSuffix("\r\n\r\ntoken_info=%7B%7D") == true)
        #expect(server.requests.last?.lowercased().contains("cookie") == false)
        // Of the answer's ETag, which is called Etag on Linux.
        #expect(server.requests.last?.contains("\r\nIf-Match: \"1\"\r\n") == true)
    }

    @Test(.timeLimit(.minutes(30)))
    func `slow answers that nobody waits for any more hold up no other request`() async throws {
        let isOver = Locked(false)
        defer { isOver.current = true }
        let server = try LoopbackServer { _, number in
            // URLSession has at most six connections to a host.
            if number > 8 { return [LoopbackServer.answer(Answers.found("{}"))] }
            return [LoopbackServer.answer("", length: 1 << 20), .drip { !isOver.current }]
        }
        defer { server.end() }
        for _ in 0..<8 {
            let hasty = try remote(server, timeout: .milliseconds(100))
            await #expect(throws: TokenCacheError.timedOut) { try await hasty.fetch() }
        }
        try await until { server.requests.count == 8 }
        #expect(try await remote(server).fetch() == nil)
    }

    #if !canImport(Darwin)
    @Test func `plain requests are not sent through a proxy of the environment`() async throws {
        // The other tests of this process must not find the variables.
        await #expect(processExitsWith: .success) {
            let proxy = try LoopbackServer { _, _ in [] }
            let server = try LoopbackServer { _, _ in [LoopbackServer.answer(Answers.found("{}"))] }
            for name in ["http_proxy", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"] { unsetenv(name) }
            for name in ["http_proxy", "all_proxy", "ALL_PROXY"] {
                setenv(name, "http://127.0.0.1:\(proxy.port)", 1)
                for (exempt, isSent) in [("", false), ("127.0.0.10,a", false), ("*", true), ("a, 127.0.0.1", true)] {
                    setenv("no_proxy", exempt, 1)
                    let found = try? await remote(server).fetchVersion()
                    if (found != nil) != isSent { _exit(EXIT_FAILURE) }
                }
                unsetenv(name)
            }
            // The handlers of `exit` may crash while URLSession works.
            _exit(proxy.requests.isEmpty ? EXIT_SUCCESS : EXIT_FAILURE)
        }
    }
    #endif

    @Test(arguments: [10_000_000_000_000_000, .max, .min])
    func `no time limit ends the process`(seconds: Int64) async throws {
        await #expect(processExitsWith: .success) { [seconds] in
            let server = try LoopbackServer { _, _ in [LoopbackServer.answer(Answers.found("{}"))] }
            let found = try? await remote(server, timeout: .seconds(seconds)).fetchVersion()
            // An answer may come before a limit that has passed already. The handlers of `exit` may crash while URLSession works.
            _exit(found != nil || seconds < 0 ? EXIT_SUCCESS : EXIT_FAILURE)
        }
    }
}
