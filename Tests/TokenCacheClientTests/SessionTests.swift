import Foundation
import Testing

@testable import TokenCacheClient

private let day: TimeInterval = 86_400

private func token(
    _ text: String = "cached", expires: TimeInterval = 60 * day, refreshed: TimeInterval = 0, _ clock: TestClock,
    permissions: Set<String> = ["email"], appID: String? = nil
) -> TokenInformation {
    TokenInformation(
        token: text, expirationDate: clock.now + expires, refreshDate: clock.now + refreshed, permissions: permissions,
        appID: appID)
}

private func token(_ clock: TestClock, permissions: Set<String> = ["email"], appID: String? = nil) -> TokenInformation {
    token("cached", clock, permissions: permissions, appID: appID)
}

@Suite struct SessionTests {
    let clock = TestClock()

    private func session(_ cache: any TokenCaching, permissions: Set<String> = [], appID: String? = nil) -> Session {
        Session(cache: cache, permissions: permissions, appID: appID, now: { [clock] in clock.now })
    }

    // MARK: - Opening

    @Test func `a cached token opens the session, and is told to all listeners`() async throws {
        let session = session(MemoryCache(token(clock)))
        let early = session.states
        #expect(try await session.open() == .open)
        let late = session.states
        try await session.close()
        var states: [[Session.State]] = [[], []]
        for await state in early { states[0].append(state) }
        for await state in late { states[1].append(state) }
        #expect(states == [[.created, .createdTokenLoaded, .open, .closed], [.open, .closed]])
        var last: [Session.State] = []
        for await state in session.states { last.append(state) }
        #expect(last == [.closed])
    }

    @Test func `without a token and a login it stays as it is`() async throws {
        let cache = MemoryCache()
        let session = session(cache)
        #expect(try await session.open() == .created)
        await #expect(throws: SessionError.notOpen(.created)) { try await session.token() }
        let login = token("login", clock)
        #expect(try await session.open(login: { login }) == .open)
        #expect(try await session.token() == login)
        #expect(cache.information == login)
        await #expect(throws: SessionError.cannotOpen(.open)) { try await session.open() }
    }

    @Test func `a login that fails ends the session and changes nothing`() async throws {
        for blank in [false, true] {
            let cache = MemoryCache(token(expires: -2 * day, clock))
            let before = cache.information
            let session = session(cache)
            await #expect(throws: (any Error).self) {
                try await session.open(login: {
                    guard blank else { throw Trouble() }
                    return TokenInformation(token: " ")
                })
            }
            #expect(session.state == .closedLoginFailed)
            #expect(cache.information == before)
            await #expect(throws: SessionError.cannotOpen(.closedLoginFailed)) { try await session.open() }
        }
    }

    @Test func `unknown is not signed out`() async throws {
        let cache = MemoryCache()
        cache.fail()
        let session = session(cache)
        let login = token("login", clock)
        await #expect(throws: Trouble.self) { try await session.open() }
        await #expect(throws: Trouble.self) { try await session.open(login: { login }) }
        #expect(session.state == .created)
        #expect(try await session.open(login: { login }, loginIfUnknown: true) == .open)
        // It could not be cached, and is tried again.
        #expect(await session.cachingError is Trouble)
        cache.fail(false)
        clock.advance(by: 61)
        _ = try await session.token()
        try await until { cache.information == login }
        try await until { await session.cachingError == nil }
    }

    @Test func `only a token that fits is accepted, and the others stay where they are`() async throws {
        let wanted: [(TokenInformation, Bool)] = [
            (token(clock, permissions: ["email", "a"]), true), (token(clock, permissions: ["a"]), false),
            (token(clock, appID: "12"), true), (token(clock, appID: "13"), false),
            // The leeway is five minutes.
            (token(expires: -299, clock), true), (token(expires: -300, clock), false),
            (TokenInformation(token: "x", expirationDate: nil, permissions: ["email"]), true),
        ]
        for (cached, isAccepted) in wanted {
            let cache = MemoryCache(cached)
            let session = session(cache, permissions: ["email"], appID: "12")
            #expect(try await session.load() == (isAccepted ? .createdTokenLoaded : .created))
            #expect(try await session.open() == (isAccepted ? .open : .created))
            try await session.close()
            #expect(cache.information == cached)
        }
    }

    @Test func `a clock that is a day off clears nothing`() async throws {
        for offset in [-day, day] {
            let cached = token(expires: 3_600, clock)
            let cache = MemoryCache(cached)
            let session = Session(cache: cache, now: { [clock] in clock.now + offset })
            #expect(try await session.open() == (offset > 0 ? .created : .open))
            try await session.close()
            #expect(cache.information == cached)
        }
    }

    @Test func `a session that is closed while it opens stays closed`() async throws {
        let cache = MemoryCache(token(clock))
        cache.gate.shut()
        let session = session(cache)
        let opening = Task { try await session.open() }
        await cache.gate.reached()
        await #expect(throws: SessionError.cannotOpen(.created)) { try await session.open() }
        try await session.close()
        cache.gate.open()
        await #expect(throws: SessionError.closed) { try await opening.value }
        #expect(session.state == .closedLoginFailed)
    }

    @Test func `a login that ends after the session was closed is dropped`() async throws {
        let (cache, gate, session) = (MemoryCache(), Gate(), session(MemoryCache()))
        gate.shut()
        let late = token("late", clock)
        let opening = Task {
            try await session.open(login: {
                await gate.pass()
                return late
            })
        }
        await gate.reached()
        #expect(session.state == .createdOpening)
        try await session.close(clearingToken: true)
        gate.open()
        await #expect(throws: SessionError.closed) { try await opening.value }
        #expect(session.state == .closedLoginFailed)
        #expect(cache.information == nil)
    }

    // MARK: - Refreshing

    @Test func `a token is refreshed by the SDK's rule or when it would expire`() async throws {
        let cases: [(TokenInformation, Duration, Bool)] = [
            (token(clock), .seconds(60), false), (token(refreshed: -day, clock), .seconds(60), false),
            (token(refreshed: -day - 1, clock), .seconds(60), true), (token(expires: 61, clock), .seconds(60), false),
            (token(expires: 60, clock), .seconds(60), true), (token(expires: 3_601, clock), .seconds(3_600), false),
            (token(expires: 3_600, clock), .seconds(3_600), true), (token(expires: -10, clock), .zero, true),
            (TokenInformation(token: "a", expirationDate: nil, refreshDate: clock.now), .zero, true),
            (TokenInformation(token: "a", refreshDate: nil), .zero, true),
        ]
        for (cached, duration, isRefreshed) in cases {
            let cache = MemoryCache(cached)
            let session = session(cache)
            try await session.open()
            let new = token("new", clock)
            let expected = isRefreshed ? new : cached
            #expect(try await session.token(validFor: duration, refresh: { _ in new }) == expected)
            #expect(session.state == (isRefreshed ? .openTokenExtended : .open))
            #expect(cache.information == expected)
        }
    }

    @Test func `a thousand tasks, one refresh`() async throws {
        let session = session(MemoryCache(token(expires: 10, clock)))
        try await session.open()
        let (gate, calls) = (Gate(), Locked(0))
        gate.shut()
        let new = token("new", clock)
        let tasks = (0..<1_000).map { _ in
            Task {
                try await session.token(refresh: { _ in
                    calls.withLock { $0 += 1 }
                    await gate.pass()
                    return new
                })
            }
        }
        await gate.reached()
        try await until { await session.waiting?.count == 1_000 }
        gate.open()
        for task in tasks { #expect(try await task.value == new) }
        #expect(calls.withLock { $0 } == 1)
    }

    @Test func `a refresh that fails is tried again: at once if it is urgent, after an hour if not`() async throws {
        let urgent = session(MemoryCache(token(expires: 10, clock)))
        try await urgent.open()
        await #expect(throws: Trouble.self) { try await urgent.token(refresh: { _ in throw Trouble() }) }
        #expect(urgent.state == .open)
        let new = token("new", clock)
        #expect(try await urgent.token(refresh: { _ in new }) == new)

        let old = token(refreshed: -2 * day, clock)
        let calls = Locked(0)
        let relaxed = session(MemoryCache(old))
        try await relaxed.open()
        for expected in [1, 1, 2] {
            #expect(
                try await relaxed.token(refresh: { _ in
                    calls.withLock { $0 += 1 }
                    throw Trouble()
                }) == old)
            #expect(calls.withLock { $0 } == expected)
            clock.advance(by: 1_801)
        }
        // Without anything to refresh by, it is used until it has surely expired.
        #expect(try await relaxed.token() == old)
        clock.advance(by: 60 * day)
        await #expect(throws: SessionError.expired) { try await relaxed.token() }
    }

    @Test func `a sign-out in the middle of a refresh stays, and nobody waits on`() async throws {
        let cache = MemoryCache(token(expires: 10, clock))
        let session = session(cache)
        try await session.open()
        let gate = Gate()
        gate.shut()
        let late = token("late", clock)
        let tasks = (0..<10).map { _ in
            Task {
                try await session.token(refresh: { _ in
                    await gate.pass()
                    return late
                })
            }
        }
        await gate.reached()
        try await until { await session.waiting?.count == 10 }
        try await session.close(clearingToken: true)
        for task in tasks { await #expect(throws: SessionError.closed) { try await task.value } }
        // The next user of the same cache.
        let next = token("next", clock)
        try await cache.cache(next)
        gate.open()
        try await Task.sleep(for: .milliseconds(20))
        #expect(cache.information == next)
        #expect(session.state == .closed)
    }

    @Test func `a sign-out while the new token is being stored comes after it`() async throws {
        let cache = MemoryCache(token(expires: 10, clock))
        let session = session(cache)
        try await session.open()
        cache.gate.shut()
        let new = token("new", clock)
        let refreshing = Task { try await session.token(refresh: { _ in new }) }
        await cache.gate.reached()
        let closing = Task { try await session.close(clearingToken: true) }
        await #expect(throws: SessionError.closed) { try await refreshing.value }
        cache.gate.open()
        try await closing.value
        #expect(cache.information == nil)
    }

    /// A cache whose stores take long, while clearing is done at once.
    private struct SlowCache: TokenCaching {
        let inner: MemoryCache
        let gate = Gate()
        func fetch() async throws -> TokenInformation? { try await inner.fetch() }
        func cache(_ information: TokenInformation) async throws {
            await gate.pass()
            try await inner.cache(information)
        }
        func clear() async throws { try await inner.clear() }
    }

    @Test func `a sign-out waits for a store that takes longer`() async throws {
        let cache = SlowCache(inner: MemoryCache(token(expires: 10, clock)))
        let session = session(cache)
        try await session.open()
        cache.gate.shut()
        let new = token("new", clock)
        let refreshing = Task { try await session.token(refresh: { _ in new }) }
        await cache.gate.reached()
        let closing = Task { try await session.close(clearingToken: true) }
        await #expect(throws: SessionError.closed) { try await refreshing.value }
        for _ in 0..<100 { await Task.yield() }
        cache.gate.open()
        try await closing.value
        // The store and the clearing, in this order.
        try await until { cache.inner.contents.withLock { $0.writes } == 2 }
        #expect(cache.inner.information == nil)
    }

    @Test func `a task that is cancelled does not take the refresh from the others`() async throws {
        let session = session(MemoryCache(token(expires: 10, clock)))
        try await session.open()
        let gate = Gate()
        gate.shut()
        let new = token("new", clock)
        let refresh: Session.Refresh = { _ in
            await gate.pass()
            try Task.checkCancellation()
            return new
        }
        let first = Task { try await session.token(refresh: refresh) }
        await gate.reached()
        let second = Task { try await session.token(refresh: refresh) }
        try await until { await session.waiting?.count == 2 }
        first.cancel()
        await #expect(throws: CancellationError.self) { try await first.value }
        gate.open()
        #expect(try await second.value == new)
    }

    // MARK: - Other devices

    /// A cache in which another device has written in between.
    private struct ContestedCache: TokenCaching {
        let cached: TokenInformation
        let current: TokenInformation?
        func fetch() async throws -> TokenInformation? { cached }
        func cache(_ information: TokenInformation) async throws { throw TokenCacheError.conflict(current: current) }
        func clear() async throws {}
    }

    @Test func `the token of another device that was faster counts, and so does its sign-out`() async throws {
        let (old, new, other) = (token(expires: 10, clock), token("new", clock), token("other", clock))
        let first = session(ContestedCache(cached: old, current: other))
        try await first.open()
        #expect(try await first.token(refresh: { _ in new }) == other)
        #expect(try await first.token() == other)
        let second = session(ContestedCache(cached: old, current: nil))
        try await second.open()
        await #expect(throws: SessionError.closed) { try await second.token(refresh: { _ in new }) }
        #expect(second.state == .closed)
    }

    @Test func `looking again adopts what is there`() async throws {
        let cache = MemoryCache(token(clock))
        let session = session(cache)
        try await session.open()
        #expect(try await session.reload() == .open)
        let other = token("other", clock)
        try await cache.cache(other)
        #expect(try await session.reload() == .openTokenExtended)
        #expect(try await session.token() == other)
        cache.fail()
        await #expect(throws: Trouble.self) { try await session.reload() }
        #expect(session.state.isOpen)
        cache.fail(false)
        try await cache.clear()
        #expect(try await session.reload() == .closed)
        await #expect(throws: SessionError.notOpen(.closed)) { try await session.reload() }
    }

    // MARK: - Closing

    @Test func `clearing works in any state, and can be repeated`() async throws {
        for opens in [false, true] {
            let cache = MemoryCache(token(clock))
            let session = session(cache)
            if opens { try await session.open() }
            cache.fail()
            await #expect(throws: Trouble.self) { try await session.close(clearingToken: true) }
            #expect(session.state == (opens ? .closed : .closedLoginFailed))
            #expect(cache.information != nil)
            cache.fail(false)
            try await session.close(clearingToken: true)
            #expect(cache.information == nil)
        }
    }

    @Test func `listeners end with the session object`() async throws {
        var session: Session? = session(MemoryCache())
        let states = try #require(session).states
        session = nil
        var seen: [Session.State] = []
        for await state in states { seen.append(state) }
        #expect(seen == [.created])
    }
}
