import Foundation
import Testing

@testable import TokenCacheClient

extension LayeredTokenCacheTests {
    // MARK: - Outages

    @Test(arguments: [-86_400, 0, 86_400] as [TimeInterval], [true, false])
    func `after an outage no device's clock decides which token stands`(offset: TimeInterval, isAnswerLost: Bool)
        async throws
    {
        let (server, isDown) = (VersionedServer(), Locked(!isAnswerLost))
        let transport = server.transport()
        let first = try layered(
            remote: remote(
                .session { _ in "tcs_a" },
                ScriptedTransport { request, _ in
                    if isDown.withLock({ $0 }) { throw TokenCacheError.unreachable(code: -1004) }
                    return try await transport.send(request)
                }))
        server.losesAnswers.withLock { $0 = isAnswerLost }
        try await first.store(token("one"))
        server.losesAnswers.withLock { $0 = false }
        isDown.withLock { $0 = true }
        // Meanwhile, by a device whose clock may be a day behind, of the same login or another one.
        let second = try layered(disk: TestStorage(), remote: remote(.session { _ in "tcs_b" }, transport))
        #expect(try await second.fetch()?.token == (isAnswerLost ? "one" : nil))
        try await second.store(token("two", login: isAnswerLost ? "1" : "2", at: offset))
        isDown.withLock { $0 = false }
        try await first.synchronize()
        #expect([server.token, disk.information?.token] == ["two", "two"])
    }

    @Test func `a store that has lost everything signs nobody out, and gets the token again`() async throws {
        for (identity, isKept) in [
            (.uniqueID("a"), true), (.session { _ in "eyJhbGciOi.J9.a" }, true),
            // Such a store would not know the session: the app's server has deleted the token.
            (.session { _ in "tcs_a" }, false),
        ] as [(RemoteTokenCache.Identity, Bool)] {
            let (server, disk) = (VersionedServer(), TestStorage())
            let cache = layered(disk: disk, remote: try remote(identity, server.transport()))
            try await cache.store(token("one"))
            server.row.withLock { $0 = VersionedServer.Row() }
            let session = patientSession(cache: layered(disk: disk, remote: try remote(identity, server.transport())))
            #expect(try await session.open() == (isKept ? .open : .created))
            if isKept {
                try await cache.store(token("two"))
                #expect(server.token == "two")
                // Other devices leave a mark when they sign out.
                try await layered(disk: TestStorage(), remote: remote(identity, server.transport())).clear()
                #expect(try await session.reload() == .closed)
            }
            #expect(disk.information == nil)
        }
    }

    @Test func `what a proxy or a portal answers ends no write`() async throws {
        let (server, isCaptive) = (VersionedServer(), Locked(true))
        let transport = server.transport()
        let remote = try remote(
            .session { _ in "tcs_a" },
            ScriptedTransport { request, number in
                if isCaptive.withLock({ $0 }) { return request.answer("<html>", status: 403) }
                return try await transport.send(request)
            })
        let cache = LayeredTokenCache(
            local: LocalTokenCache(disk, user: "a"), remote: remote, patience: .seconds(20),
            clock: HastyClock(longest: .seconds(3_000)))
        try await cache.store(token("one"))
        #expect(isQueued)
        isCaptive.withLock { $0 = false }
        // By itself.
        try await until { server.token == "one" }
    }

    @Test func `a token that a refresh has just returned is sent by synchronize`() async throws {
        let cache = layered()
        try await cache.store(token("one"))
        let session = patientSession(cache: cache, now: { [clock] in clock.now })
        try await session.open()
        for number in 0..<50 {
            let new = token("\(number)")
            _ = try await session.token(forcingRefresh: true) { _ in new }
            try await cache.synchronize()
            #expect(server.information?.token == "\(number)")
        }
    }
}
