import Foundation
import TestSupport
import Testing

@testable import TokenCacheClient

extension SessionTests {
    // MARK: - Calls while others are under way

    @Test(arguments: [false, true])
    func `a token that is asked for while the session opens comes when it is open`(isFailing: Bool) async throws {
        let cache = MemoryCache(named)
        let session = session(cache)
        cache.gate.shut()
        let opening = Task { try await session.open() }
        try await until { await session.opening != nil }
        let asking = Task { try await session.token() }
        try await until { await session.opening?.search.waiters == 1 }
        cache.fail(isFailing)
        cache.gate.open()
        if isFailing {
            // The app learns that it is to try again, not that the user has to log in.
            await #expect(throws: Trouble.self) { try await asking.value }
            await #expect(throws: Trouble.self) { try await opening.value }
        } else {
            #expect(try await asking.value == named)
            #expect(try await opening.value == .open)
        }
    }

    @Test func `a sign-out that has begun counts for a session that is opened again`() async throws {
        let cache = MemoryCache(named)
        let session = session(cache)
        try await session.open()
        let gate = Gate()
        gate.shut()
        let earlier = Task { try await session.writes.run { await gate.pass() } }
        await gate.reached()
        let leaving = Task { try await session.signOut() }
        try await until { session.state == .closed }
        let opening = Task { try await session.open() }
        try await until { await session.opening != nil }
        for _ in 0..<100 { await Task.yield() }
        #expect(cache.done == ["fetch"])
        gate.open()
        try await earlier.value
        #expect(try await opening.value == .created)
        _ = try await leaving.value
        #expect(cache.done == ["fetch", "clear", "fetch"])
    }

    @Test func `a closure that refreshes may ask for the session's token`() async throws {
        let session = session(MemoryCache(named))
        try await session.open()
        let new = try await session.token(forcingRefresh: true) { old in
            let present = try await session.token(forcingRefresh: true)
            #expect(present == old)
            return token("new", clock)
        }
        #expect(new.token == "new")
    }

    @Test func `a login may ask for the session's token, and learns that there is none`() async throws {
        let (cache, earlier) = (MemoryCache(), Locked<Task<TokenInformation, any Error>?>(nil))
        let session = session(cache)
        cache.gate.shut()
        let opening = Task {
            try await session.open {
                // Also one that has asked before the user was.
                await #expect(throws: TokenSessionError.notOpen(.createdOpening)) { try await earlier.current?.value }
                await #expect(throws: TokenSessionError.notOpen(.createdOpening)) { try await session.token() }
                return named
            }
        }
        try await until { await session.opening != nil }
        earlier.current = Task { try await session.token() }
        try await until { await session.opening?.search.waiters == 1 }
        cache.gate.open()
        #expect(try await opening.value == .open)
    }
}
