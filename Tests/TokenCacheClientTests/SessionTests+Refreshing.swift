import Foundation
import TestSupport
import Testing

@testable import TokenCacheClient

extension SessionTests {
    // MARK: - Refreshing

    @Test func `a token is refreshed first if it would expire, and meanwhile if it is due by the SDK's rule`()
        async throws
    {
        enum Outcome { case kept, due, urgent }
        let cases: [(TokenInformation, Duration, Outcome)] = [
            (token(clock), .seconds(60), .kept), (token(refreshed: -day, clock), .seconds(60), .kept),
            (token(refreshed: -day - 1, clock), .seconds(60), .due), (token(expires: 61, clock), .seconds(60), .kept),
            // Before the clock was set back.
            (token(refreshed: day, clock), .zero, .kept), (token(refreshed: day + 1, clock), .zero, .due),
            (token(expires: 60, clock), .seconds(60), .urgent),
            (token(expires: 3_601, clock), .seconds(3_600), .kept),
            (token(expires: 3_600, clock), .seconds(3_600), .urgent), (token(expires: -10, clock), .zero, .urgent),
            (TokenInformation(token: "a", expirationDate: nil, refreshDate: clock.now, loginID: "1"), .zero, .due),
            (TokenInformation(token: "a", refreshDate: nil, loginID: "1"), .zero, .due),
        ]
        for (cached, duration, outcome) in cases {
            let cache = MemoryCache(cached)
            let (session, gate) = (session(cache), Gate())
            try await session.open()
            var events = session.events.makeAsyncIterator()
            let new = token("new", clock)
            gate.shut()
            if outcome != .due { gate.open() }
            let refresh: TokenSession.Refresh = { _ in
                await gate.pass()
                return new
            }
            let found = try await session.token(validFor: duration, refresh: refresh)
            #expect(found == (outcome == .urgent ? new : cached))
            if outcome == .kept {
                #expect(session.state == .open)
                #expect(cache.information == cached)
                continue
            }
            gate.open()
            guard case .renewed(let renewed)? = await events.next() else { throw Trouble() }
            #expect(renewed == new)
            #expect(session.state == .openTokenExtended)
            try await until { cache.information == new }
        }
    }

    @Test func `a refused token, in place of which a refresh has brought one that is refused too, opens no session`()
        async throws
    {
        for pause in [59.0, 61] {
            let first = TokenInformation(token: "one", refreshDate: clock.now, loginID: "1", refreshToken: "R")
            let session = TokenSession(
                cache: LocalTokenCache(.memory, user: "a"),
                refresh: { old in old.refreshed(token: old.token + "+", refreshToken: "R") },
                clock: WaitingClock(), now: { [clock] in clock.now })
            try await session.open { first }
            await session.invalidate(first)
            let second = try await session.token()
            #expect(second.token == "one+")
            clock.advance(by: pause)
            await session.invalidate(second)
            await session.close()
            // After a longer time, it may have been refused for another reason.
            #expect(try await session.open() == (pause < 60 ? .created : .open))
        }
    }

    @Test(arguments: [false, true])
    func `a token that was refused opens no session, until it is extended under the same text`(isExtended: Bool)
        async throws
    {
        let session = session(LocalTokenCache(.memory, user: "a"))
        try await session.open { self.named }
        await session.invalidate(named)
        // One that has been replaced already, and other permissions, which are no extension.
        await session.invalidate(token(clock))
        try await session.updatePermissions(granted: ["likes"])
        if isExtended { try await session.adopt(named.refreshed(token: named.token, now: clock.now + 1)) }
        await session.close()
        #expect(try await session.open() == (isExtended ? .open : .created))
    }

    @Test func `without a refresh, an expired token is looked for in the cache, and then the user is asked`()
        async throws
    {
        let cache = MemoryCache(token(clock))
        let session = session(cache)
        try await session.open()
        let renewed = token("of the server", expires: 120 * day, clock)
        clock.advance(by: 60 * day + 1)
        // For as long as the device's clock may be ahead, the old one still serves, and the cache is asked once a minute.
        for _ in 0..<2 { #expect(try await session.token().token == "cached") }
        #expect(cache.done == ["fetch", "fetch"])
        clock.advance(by: 400)
        cache.fail()
        await #expect(throws: Trouble.self) { try await session.token() }
        cache.fail(false)
        await #expect(throws: TokenSessionError.expired) { try await session.token() }
        try await cache.store(renewed)
        #expect(try await session.token() == renewed)
        clock.advance(by: 200 * day)
        let login = token("of a login", clock)
        // An app may refresh it yet, by a closure of its own.
        try await session.open { login }
        #expect(session.currentToken == renewed)
        await #expect(throws: TokenSessionError.expired) { try await session.token() }
        try await session.open { login }
        #expect(session.currentToken == login)
    }

    @Test func `a refresh loses nothing that it does not name`() async throws {
        let cache = MemoryCache(named)
        let session = session(cache)
        try await session.open()
        var expected = named
        (expected.token, expected.expirationDate, expected.refreshDate) = ("two", clock.now + day, clock.now + 1)
        expected.others["b"] = .null
        var new = try await session.token(forcingRefresh: true) { [clock] _ in
            TokenInformation(
                token: "two", expirationDate: clock.now + day, refreshDate: clock.now + 1, loginID: "of the app",
                others: ["b": .null])
        }
        #expect(new == expected)
        (expected.token, expected.refreshDate, expected.refreshToken) = ("three", clock.now, "S")
        new = try await session.token(forcingRefresh: true) { [clock] old in
            old.refreshed(token: "three", expiresIn: .seconds(day), refreshToken: "S", now: clock.now)
        }
        #expect(new == expected)
        #expect(expected.refreshed(token: "four").expirationDate == .distantFuture)
        try await until { cache.information == expected }
    }

    @Test func `an app and its widget refresh a token once, and one that ended in between does not stop the other`()
        async throws
    {
        let directory = TemporaryDirectory()
        let folder = URL(filePath: directory.path)
        let old = token(expires: 10, clock)
        try await LocalTokenCache(.directory(folder), user: "a").store(old)
        let (calls, gate) = (Locked(0), Gate())
        gate.shut()
        let sessions = (0..<2).map { index in
            let local = LocalTokenCache(.directory(folder), user: "a")
            return session(index == 0 ? local : LayeredTokenCache(local: local, remote: MemoryCache(old)))
        }
        for session in sessions { try await session.open() }
        let refresh: TokenSession.Refresh = { [clock] _ in
            let number = calls.withLock { calls in
                calls += 1
                return calls
            }
            await gate.pass()
            return token("new \(number)", clock)
        }
        let tasks = sessions.map { session in Task { try await session.token(refresh: refresh) } }
        await gate.reached()
        gate.open()
        for task in tasks { #expect(try await task.value.token == "new 1") }
        #expect(calls.current == 1)
        // A process that is killed while it refreshes.
        guard FileManager.default.isExecutableFile(atPath: "/usr/bin/flock") else { return }
        let other = Process()
        other.executableURL = URL(filePath: "/usr/bin/flock")
        let lock = folder.appending(path: ".refresh-" + SHA256.hexadecimal("a").prefix(2)).path
        other.arguments = ["--no-fork", lock, "cat"]
        let (input, output) = (Pipe(), Pipe())
        (other.standardInput, other.standardOutput) = (input, output)
        try other.run()
        try input.fileHandleForWriting.write(contentsOf: Data("held".utf8))
        #expect(output.fileHandleForReading.availableData == Data("held".utf8))
        let waiting = Task { try await sessions[0].token(forcingRefresh: true, refresh: refresh) }
        try await until { await sessions[0].refreshing?.waiters == 1 }
        #expect(calls.current == 1)
        kill(other.processIdentifier, SIGKILL)
        #expect(try await waiting.value.token == "new 2")
    }

    @Test func `what happens is told, with its values`() async throws {
        let cache = MemoryCache(token(expires: 10, clock))
        let session = session(cache)
        try await session.open()
        var events = session.events.makeAsyncIterator()
        await #expect(throws: Trouble.self) { try await session.token(refresh: { _ in throw Trouble() }) }
        guard case .refreshFailed(let error)? = await events.next(), error is Trouble else { throw Trouble() }
        cache.fail()
        let new = token("new", clock)
        _ = try await session.token(refresh: { _ in new })
        guard case .renewed(new)? = await events.next() else { throw Trouble() }
        guard case .cachingFailed(let failure)? = await events.next(), failure is Trouble else { throw Trouble() }
        cache.fail(false)
        await session.close()
        guard case .ended(.closed)? = await events.next() else { throw Trouble() }
        try await session.open()
        try await cache.clear()
        try await session.reload()
        guard case .ended(.signedOutElsewhere)? = await events.next() else { throw Trouble() }
        await #expect(throws: CancellationError.self) { try await session.open { throw CancellationError() } }
        await #expect(throws: Trouble.self) { try await session.open { throw Trouble() } }
        guard case .loginFailed(let reason)? = await events.next(), reason is Trouble else { throw Trouble() }
        try await session.open { new }
        try await session.signOut()
        guard case .ended(.signedOut)? = await events.next() else { throw Trouble() }
    }

    @Test func `the account ends after the token, and learns whether the server has that`() async throws {
        for isDown in [false, true] {
            let server = MemoryCache()
            // Whoever is told that the server has it must have waited for it.
            let cache = layeredCache(server, patience: isDown ? .milliseconds(50) : .seconds(3_600))
            let session = session(cache)
            let one = token(clock)
            try await session.open { one }
            server.fail(isDown)
            let told = Locked<Bool?>(nil)
            try await session.signOut { isSent in
                #expect(isSent == (server.information == nil))
                told.current = isSent
            }
            #expect(told.current == !isDown)
        }
    }

    @Test func `the account ends after the token, also if the task is cancelled`() async throws {
        let server = MemoryCache()
        let session = session(layeredCache(server))
        let one = token(clock)
        try await session.open { one }
        server.gate.shut()
        let told = Locked<[Bool]>([])
        let task = Task { try await session.signOut { isSent in told.withLock { $0.append(isSent) } } }
        await server.gate.reached()
        task.cancel()
        await #expect(throws: CancellationError.self) { try await task.value }
        #expect(told.current == [])
        server.gate.open()
        try await until { told.withLock { !$0.isEmpty } }
        #expect(told.current == [true])
    }

    @Test func `a thousand tasks, one refresh, which no cancelled one takes from the others`() async throws {
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
                    try Task.checkCancellation()
                    return new
                })
            }
        }
        await gate.reached()
        try await until { await session.refreshing?.waiters == 1_000 }
        // One of them has begun it.
        for task in tasks.dropLast() { task.cancel() }
        for task in tasks.dropLast() { await #expect(throws: CancellationError.self) { try await task.value } }
        gate.open()
        #expect(try await tasks[999].value == new)
        #expect(calls.current == 1)
    }

    @Test func `a refresh that is not urgent is tried again after an hour, by a clock that may be set back`()
        async throws
    {
        let old = token(refreshed: -2 * day, clock)
        let calls = Locked(0)
        let relaxed = session(MemoryCache(old))
        try await relaxed.open()
        var events = relaxed.events.makeAsyncIterator()
        let tries: [(Int, Bool, TimeInterval)] = [
            (1, true, 1_801), (1, false, 1_801), (2, true, -3_601), (3, true, 7_200),
        ]
        for (expected, isTried, later) in tries {
            let found = try await relaxed.token(refresh: { _ in
                calls.withLock { $0 += 1 }
                throw Trouble()
            })
            #expect(found == old)
            if isTried { _ = await events.next() }
            #expect(calls.current == expected)
            clock.advance(by: later)
        }
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
        try await until { await session.refreshing?.waiters == 10 }
        try await session.signOut()
        for task in tasks { await #expect(throws: TokenSessionError.closed) { try await task.value } }
        // The next user of the same cache.
        let next = token("next", clock)
        try await cache.store(next)
        gate.open()
        try await Task.sleep(for: .milliseconds(20))
        #expect(cache.information == next)
        #expect(session.state == .closed)
    }

    @Test func `a refresh that waits for another process's when the session ends does not begin`() async throws {
        let local = LocalTokenCache(.memory, user: "a")
        try await local.store(token(expires: 10, clock))
        let other = try #require(await local.lockRefreshes { false })
        let calls = Locked(0)
        weak var ended: TokenSession?
        do {
            let session = session(local)
            ended = session
            try await session.open()
            let waiting = Task {
                try await session.token(refresh: { _ in
                    calls.withLock { $0 += 1 }
                    throw Trouble()
                })
            }
            try await until { await session.refreshing?.waiters == 1 }
            await session.close()
            await #expect(throws: TokenSessionError.closed) { try await waiting.value }
        }
        // The session's task is the last that holds the session.
        try await until { ended == nil }
        other.release()
        #expect(calls.current == 0)
        #expect(await local.lockRefreshes { false } != nil)
    }

    @Test(arguments: [false, true])
    func `a new token is delivered before it is stored, and the end of the session waits for that`(isSignOut: Bool)
        async throws
    {
        let cache = MemoryCache(token(expires: 10, clock))
        let session = session(cache)
        try await session.open()
        cache.storing.shut()
        let new = token("new", clock)
        #expect(try await session.token(refresh: { _ in new }) == new)
        await cache.storing.reached()
        let ending = Task { if isSignOut { try await session.signOut() } else { await session.close() } }
        try await until { session.state == .closed }
        for _ in 0..<100 { await Task.yield() }
        cache.storing.open()
        try await ending.value
        #expect(cache.done == ["fetch", "fetch", "store"] + (isSignOut ? ["clear"] : []))
    }
}
