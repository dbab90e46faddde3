import Foundation
import TestSupport
import Testing

@testable import TokenCacheClient

private let token = TokenInformation(
    token: "CAAC+/&=%", refreshDate: Date(timeIntervalSince1970: 1_700_000_000), permissions: ["email"])

/// A cache that waits for its server however busy the machine is, unless the test has another limit.
private func remote(
    _ url: URL, _ identity: RemoteTokenCache.Identity = .uniqueID("chaos+&"), timeout: Duration = .seconds(3_600)
) throws -> RemoteTokenCache {
    try RemoteTokenCache(url: url, identity: identity, timeout: timeout)
}

/// The real transport against a server that misbehaves: none of it clears a token, none says that there is none, and the next
/// good answer heals.
@Suite(.serialized) struct ChaosTests {
    private static let html =
        "<html><head><title>Welcome</title></head><body>Log in to the hotel's network</body></html>"

    private static let troubles: [(String, [LoopbackServer.Step])] = [
        ("nothing", []), ("half a status line", [.send("HTTP/1.1 20")]), ("no HTTP", [.send("SSH-2.0-x\r\n\r\n")]),
        (
            "503",
            [LoopbackServer.answer(Answers.nothing, status: "503 Service Unavailable", fields: "Retry-After: 1\r\n")]
        ),
        ("a portal", [LoopbackServer.answer(html)]),
        ("cut JSON", [LoopbackServer.answer(String(Answers.found("{}").dropLast(5)))]),
        ("a cut body", [LoopbackServer.answer(Answers.nothing, length: 500)]),
        ("an answer that ends too late", [LoopbackServer.answer("{", length: 60), .wait(milliseconds: 900)]),
        ("silence", [.wait(milliseconds: 900)]),
        (
            "a drip",
            Array(repeating: [.send("HTTP/1.1 200 OK\r\nX-A: b\r\n"), .wait(milliseconds: 90)], count: 10).flatMap {
                $0
            }
        ),
    ]

    @Test(arguments: troubles.indices)
    func `trouble is never taken for a sign-out, and the next good answer heals`(index: Int) async throws {
        let (name, steps) = Self.troubles[index]
        let isHealed = Locked(false)
        let server = try LoopbackServer { request, _ in
            guard isHealed.current else { return steps }
            return [LoopbackServer.answer(request.hasPrefix("GET") ? Answers.found(token.text) : Answers.stored)]
        }
        defer { server.end() }
        let cache = try remote(server.url(), timeout: .milliseconds(400))
        await #expect(throws: TokenCacheError.self, "\(name)") { try await cache.fetch() }
        await #expect(throws: TokenCacheError.self, "\(name)") { try await cache.store(token) }

        // A device that has the token keeps it, and stays open.
        let directory = TemporaryDirectory()
        let folder = URL(filePath: directory.path)
        let local = LocalTokenCache(.directory(folder), user: "a")
        try await local.store(token)
        let layered = LayeredTokenCache(local: local, remote: cache)
        let session = patientSession(cache: layered)
        #expect(try await session.open() == .open, "\(name)")
        #expect(try await local.fetch() == token)
        // One that does not have it does not know.
        let empty = patientSession(
            cache: LayeredTokenCache(local: LocalTokenCache(.memory, user: "a"), remote: cache))
        await #expect(throws: TokenCacheError.self, "\(name)") { try await empty.open() }
        #expect(empty.state == .created)

        isHealed.current = true
        let patient = try remote(server.url())
        #expect(try await patient.fetch() == token)
        try await patient.store(token)
    }

    @Test(arguments: [
        "301 Moved Permanently", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect",
    ])
    func `no redirection is followed`(status: String) async throws {
        let other = try LoopbackServer { _, _ in [LoopbackServer.answer(Answers.nothing)] }
        defer { other.end() }
        for target in [
            try other.url("/elsewhere").absoluteString, "https://tokens.example.com/token.php", "/token.php?a", "x:",
        ] {
            let server = try LoopbackServer { _, _ in
                [LoopbackServer.answer("", status: status, fields: "Location: \(target)\r\n")]
            }
            defer { server.end() }
            let cache = try remote(server.url(), .session { _ in "tcs_secret" })
            let number = Int(status.prefix(3)) ?? 0
            await #expect(throws: TokenCacheError.redirected(status: number)) { try await cache.fetch() }
            await #expect(throws: TokenCacheError.redirected(status: number)) { try await cache.store(token) }
            #expect(server.requests.count == 2)
        }
        #expect(other.requests.isEmpty)
    }

    @Test(arguments: ["Basic realm=\"a\"", "Bearer", "Digest realm=\"a\", nonce=\"b\""])
    func `a refusal that asks for a password is a refusal`(challenge: String) async throws {
        let server = try LoopbackServer { _, _ in
            [
                LoopbackServer.answer(
                    #"{"status":"false","errorMessage":"Log in."}"#, status: "401 Unauthorized",
                    fields: "WWW-Authenticate: \(challenge)\r\n")
            ]
        }
        defer { server.end() }
        let cache = try remote(server.url(), .session { _ in "tcs_secret" }, timeout: .seconds(10))
        await #expect(throws: TokenCacheError.unauthorized(detail: "Log in.")) { try await cache.fetch() }
    }

    @Test func `a server that is down is unreachable`() async throws {
        let server = try LoopbackServer { _, _ in [] }
        let url = try server.url()
        server.end()
        try await until {
            do {
                _ = try await remote(url).fetch()
                return false
            } catch TokenCacheError.unreachable {
                return true
            }
        }
        let nowhere = try #require(URL(string: "http://token-cache.invalid/token.php"))
        await #expect(throws: TokenCacheError.self) { try await remote(nowhere, timeout: .seconds(5)).fetch() }
    }

    @Test func `an answer without end is not read without end`() async throws {
        let server = try LoopbackServer { _, _ in
            let part = String(repeating: "x", count: 1 << 20)
            return [.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")]
                + Array(repeating: .send(part), count: 12)
        }
        defer { server.end() }
        await #expect(throws: TokenCacheError.unexpectedAnswer(status: 200, "it is longer than any of a token cache")) {
            try await remote(server.url()).fetch()
        }
    }

    @Test func `many requests that are given up do not end the process`() async throws {
        let server = try LoopbackServer { _, number in
            [.wait(milliseconds: UInt32(number % 40)), LoopbackServer.answer(Answers.found(token.text))]
        }
        defer { server.end() }
        let url = try server.url()
        let results = await withTaskGroup(of: Bool.self) { group in
            for index in 0..<200 {
                group.addTask {
                    let task = Task { try await remote(url, timeout: .milliseconds(20)).fetch() }
                    if index % 3 == 0 {
                        try? await Task.sleep(for: .milliseconds(index % 20))
                        task.cancel()
                    }
                    let found = try? await task.value
                    return found == nil || found == token
                }
            }
            return await group.reduce(true) { $0 && $1 }
        }
        #expect(results)
    }
}
