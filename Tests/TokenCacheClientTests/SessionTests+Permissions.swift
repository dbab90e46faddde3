import Foundation
import Testing

@testable import TokenCacheClient

extension SessionTests {
    // MARK: - Permissions

    @Test func `asking for more continues the login, after a refresh that is under way`() async throws {
        let (cache, gate) = (MemoryCache(), Gate())
        let more = TokenInformation(token: "more", permissions: ["email", "likes"])
        let session = session(cache, permissions: ["email"])
        await #expect(throws: TokenSessionError.notOpen(.created)) { try await session.extend { more } }
        try await session.open { TokenInformation(token: "one", permissions: ["email"], userID: "7") }
        let login = try #require(session.currentToken?.loginID)
        gate.shut()
        let refreshing = Task {
            try await session.token(forcingRefresh: true) { old in
                await gate.pass()
                return old.refreshed(token: "refreshed", refreshToken: "R")
            }
        }
        await gate.reached()
        let extending = Task { try await session.extend { more } }
        // The user and the task that refreshes wait for the same.
        try await until { await session.refreshing?.waiters == 2 }
        gate.open()
        #expect(try await refreshing.value.token == "refreshed")
        let extended = try await extending.value
        #expect(extended == more.completed(from: try #require(session.currentToken)))
        #expect([extended.userID, extended.loginID, extended.refreshToken] == ["7", login, "R"])
        #expect(cache.information == extended)
    }

    @Test func `asking for more, as another login's token lacks permissions, replaces that token`() async throws {
        let local = LocalTokenCache(.memory, user: "a")
        let session = session(local, permissions: ["email"])
        try await session.open { TokenInformation(token: "one", permissions: ["email"]) }
        try await local.store(TokenInformation(token: "less", loginID: "2"))
        try await session.reload()
        #expect(session.currentToken?.token == "one")
        let extended = try await session.extend { TokenInformation(token: "more", permissions: ["email"]) }
        #expect(try await local.fetch() == extended)
    }

    @Test func `a cached token without a required permission is told before the user is asked`() async throws {
        let session = session(MemoryCache(token(clock)), permissions: ["email", "likes"])
        var events = session.events.makeAsyncIterator()
        #expect(try await session.open() == .created)
        guard case .permissionsMissing(["likes"])? = await events.next() else { throw Trouble() }
    }

    @Test func `asking for more in vain keeps the session`() async throws {
        let (cache, gate) = (MemoryCache(), Gate())
        let session = session(cache)
        try await session.open { TokenInformation(token: "one", userID: "7") }
        let before = session.currentToken
        let failures: [(any Error, TokenSession.Login)] = [
            (CancellationError(), { throw CancellationError() }), (Trouble(), { throw Trouble() }),
            (TokenSessionError.otherUser, { TokenInformation(token: "two", userID: "8") }),
            (TokenSessionError.blankToken, { TokenInformation(token: " ") }),
        ]
        for (expected, login) in failures {
            await #expect {
                try await session.extend(login: login)
            } throws: { "\($0)" == "\(expected)" }
        }
        gate.shut()
        let silent = Task {
            try await session.extend {
                await gate.pass()
                return TokenInformation(token: "late")
            }
        }
        await gate.reached()
        silent.cancel()
        await #expect(throws: CancellationError.self) { try await silent.value }
        gate.open()
        #expect(session.state == .open)
        #expect(session.currentToken == before)
        #expect(cache.information == before)
    }

    @Test func `what the service says about permissions is taken over`() async throws {
        let cache = MemoryCache(token(clock))
        let session = session(cache)
        try await session.open()
        await session.invalidate(token(clock))
        clock.advance(by: 1)
        try await session.updatePermissions(granted: ["likes"], declined: ["email"])
        let found = try #require(cache.information)
        #expect(found.permissions == ["likes"] && found.declinedPermissions == ["email"])
        #expect(found.permissionsRefreshDate == clock.now)
        await #expect(throws: TokenSessionError.expired) { try await session.token() }
    }

    @Test func `a token of another device that lacks a permission is told once`() async throws {
        let cache = MemoryCache(token(clock))
        let session = session(cache, permissions: ["email"])
        try await session.open()
        var events = session.events.makeAsyncIterator()
        cache.contents.withLock { $0.information = TokenInformation(token: "poor") }
        for _ in 0..<2 { #expect(try await session.reload() == .open) }
        await session.close()
        guard case .permissionsMissing(["email"])? = await events.next() else { throw Trouble() }
        guard case .ended? = await events.next() else { throw Trouble() }
    }

    @Test func `a forced refresh begins after the call`() async throws {
        let session = session(MemoryCache(token(expires: 10, clock)))
        try await session.open()
        let gates = [Gate(), Gate()]
        for gate in gates { gate.shut() }
        let tasks = (0..<4).map { index in
            Task { [clock] in
                if index > 0 { await gates[0].reached() }
                return try await session.token(forcingRefresh: index > 0) { _ in
                    await gates[min(index, 1)].pass()
                    return token("\(min(index, 1))", clock)
                }.token
            }
        }
        try await until { await session.refreshing?.waiters == 4 }
        gates[0].open()
        #expect(try await tasks[0].value == "0")
        // Those that waited for the first share the second.
        try await until { await session.refreshing?.waiters == 3 }
        gates[1].open()
        for task in tasks.dropFirst() { #expect(try await task.value == "1") }
    }
}
