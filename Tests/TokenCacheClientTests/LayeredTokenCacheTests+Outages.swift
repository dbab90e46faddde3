import Foundation
import Testing

@testable import TokenCacheClient

extension LayeredTokenCacheTests {
    // MARK: - Outages

    @Test func `a store that has lost everything signs nobody out, and gets the token again`() async throws {
        // A token-cache that knows the session has not lost everything: the app's server has deleted the token.
        for (session, isKept) in [(nil, true), ("eyJhbGciOi.J9.a", true), ("tcs_a", false)] {
            let (server, disk) = (VersionedServer(), TestStorage())
            let remote = try remote(
                session.map { text in .session { _ in text } } ?? .uniqueID("a"), server.transport())
            let cache = layered(disk: disk, remote: remote)
            try await cache.store(token("one"))
            server.row.current = VersionedServer.Row()
            #expect(try await cache.fetch()?.token == (isKept ? "one" : nil))
            guard isKept else { continue }
            try await cache.store(token("two"))
            #expect(server.token == "two")
            // A sign-out leaves a mark.
            try await layered(disk: TestStorage(), remote: remote).clear()
            #expect(try await cache.fetch() == nil)
        }
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
            #expect(server.information == new)
        }
    }
}
