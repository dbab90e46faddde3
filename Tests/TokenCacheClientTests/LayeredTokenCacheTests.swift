import Foundation
import TestSupport
import Testing

@testable import TokenCacheClient

@Suite struct LayeredTokenCacheTests {
    let clock = TestClock()
    let disk = TestStorage()
    let server = MemoryCache()

    /// A cache whose retries never come by themselves.
    func layered(
        disk: TestStorage? = nil, remote: (any TokenCaching)? = nil, patience: Duration = .seconds(20)
    ) -> LayeredTokenCache {
        layeredCache(remote ?? server, on: disk ?? self.disk, patience: patience)
    }

    var isQueued: Bool { disk.record?.write != nil }

    // MARK: - Fetching

    @Test func `a second device starts with the token of the first`() async throws {
        let one = token("one")
        try await layered().store(one)
        #expect(server.information == one)
        #expect(disk.information == one)
        #expect(!isQueued)
        let second = TestStorage()
        #expect(try await layered(disk: second).fetch() == one)
        #expect(second.information == one)
        // Signed out there, the first device learns of it at its next fetch.
        try await layered(disk: second).clear()
        #expect(try await layered().fetch() == nil)
        #expect(disk.information == nil)
    }

    @Test func `without the server, what is on the device counts`() async throws {
        let one = token("one")
        try await layered().store(one)
        server.fail()
        #expect(try await layered().fetch() == one)
        let empty = layered(disk: TestStorage())
        // Unknown, not none.
        await #expect(throws: Trouble.self) { try await empty.fetch() }
        #expect(await empty.remoteError is Trouble)
        server.fail(false)
        #expect(try await empty.fetch() == one)
        #expect(await empty.remoteError == nil)
    }

    @Test func `an app that has no session now has its token nevertheless`() async throws {
        try await LocalTokenCache(disk, user: "a").store(token("one"))
        for error in [CancellationError(), Trouble()] as [any Error] {
            let remote = try remote(.session { _ in throw error }, ScriptedTransport { _, _ in throw Trouble() })
            #expect(try await layered(remote: remote).fetch()?.token == "one")
        }
    }

    @Test func `signed out and without a network is none, once that was the last known answer`() async throws {
        let answered = TestStorage()
        #expect(try await layered(disk: answered).fetch() == nil)
        server.fail()
        #expect(try await layered(disk: answered).fetch() == nil)
        await #expect(throws: Trouble.self) { try await layered(disk: TestStorage()).fetch() }
    }

    @Test func `a task that is cancelled stops waiting at once`() async throws {
        server.gate.shut()
        let cache = layered()
        let tasks = [Task { _ = try await cache.fetch() }, Task { try await cache.store(token("one")) }]
        await server.gate.reached(by: 2)
        for task in tasks {
            task.cancel()
            await #expect(throws: CancellationError.self) { try await task.value }
        }
        server.gate.open()
    }

    @Test func `a sign-out whose task is cancelled is complete`() async throws {
        for yields in 0..<20 {
            let (disk, server) = (TestStorage(), MemoryCache())
            let cache = layered(disk: disk, remote: server)
            try await cache.store(token("one"))
            let task = Task { try await cache.clear() }
            for _ in 0..<yields { await Task.yield() }
            task.cancel()
            _ = await task.result
            try await until { disk.record?.write == nil && disk.information == nil && server.information == nil }
            // What it was based on is still known.
            #expect(disk.record?.base != .anything)
        }
    }

    @Test func `an answer that was overtaken by a write is not kept`() async throws {
        let (one, two) = (token("one"), token("two"))
        try await layered().store(one)
        let slow = MemoryCache(sharing: server)
        slow.answering.shut()
        let cache = layered(remote: slow)
        let fetching = Task { try await cache.fetch() }
        await slow.answering.reached()
        // Of another process with the same disk.
        try await layered().store(two)
        #expect(server.information == two)
        #expect(!isQueued)
        slow.answering.open()
        #expect(try await fetching.value == two)
        #expect(disk.information == two)
    }

    /// A server of which each answer waits for a gate of its own.
    private final class SlowAnswers: TokenCaching {
        let gates = [Gate(), Gate()]
        private let (server, asks) = (MemoryCache(), Locked(0))

        init() {
            for gate in gates { gate.shut() }
        }

        func fetch() async throws -> TokenInformation? {
            let number = asks.withLock { asks in
                defer { asks += 1 }
                return asks
            }
            await gates[number].pass()
            return try await server.fetch()
        }

        func store(_ information: TokenInformation) async throws {}
        func clear() async throws {}
    }

    @Test func `while the later of two fetches is under way, it is unknown what the server has`() async throws {
        let (local, server) = (LocalTokenCache(disk, user: "a"), SlowAnswers())
        try await local.store(token("one"))
        let cache = layered(remote: server)
        let first = Task { try await cache.fetch() }
        await server.gates[0].reached()
        // Of another process with the same disk.
        try await local.store(token("two"))
        let second = Task { try await cache.fetch() }
        await server.gates[1].reached()
        server.gates[0].open()
        _ = try await first.value
        #expect(await cache.obstacle(to: token("two"), at: TestClock().now) as? TokenCacheError == .timedOut)
        server.gates[1].open()
        #expect(try await second.value == nil)
    }

    @Test func `an answer that may be a failure is no reason to forget a token`() async throws {
        for (headers, isNone) in [
            ([:], true), (["Retry-After": "2"], false), (["Retry-After": "Thu, 26 Nov 2026 03:10:26 GMT"], false),
            // A server that was switched from mode `open` to `session`.
            (["WWW-Authenticate": "Bearer"], false),
        ] as [([String: String], Bool)] {
            let one = token("one")
            let answer = Locked((Answers.found(one.text), [String: String]()))
            let transport = ScriptedTransport { request, _ in
                let (text, headers) = answer.current
                return request.answer(text, headers: headers)
            }
            let remote = try remote(transport)
            let disk = TestStorage()
            #expect(try await layered(disk: disk, remote: remote).fetch() == one)
            answer.current = (Answers.nothing, headers)
            let session = patientSession(cache: layered(disk: disk, remote: remote))
            try await session.open()
            _ = try? await session.reload()
            #expect(session.state == .open)
            #expect(disk.information == one)
            let new = patientSession(cache: layered(disk: TestStorage(), remote: remote))
            if isNone {
                #expect(try await new.open() == .created)
            } else {
                await #expect(throws: TokenCacheError.self) { try await new.open() }
            }
        }
    }

    @Test(arguments: [true, false])
    func `a token without a date keeps that of its first fetch`(hasVersions: Bool) async throws {
        let server = VersionedServer(hasVersions: hasVersions)
        let text = #"{"com.facebook.sdk:TokenInformationTokenKey":"one"}"#
        server.put(text)
        let (one, base) = (token("one"), hasVersions ? .version(#""1""#) : TokenBase(contentOf: text))
        try await LocalTokenCache(disk, user: "a").update { $0 = LocalRecord(one, base: base) }
        let item = disk.state.withLock { $0.item }
        let cache = layered(remote: try remote(.session { _ in "tcs_a" }, server.transport()))
        let session = patientSession(cache: cache)
        #expect(try await session.open() == .open)
        #expect(try await session.reload() == .open)
        #expect(disk.state.withLock { $0.item } == item)
    }

    @Test(arguments: [nil, TokenCacheError.unavailable(status: 503, retryAfter: nil)])
    func `the login button of a new device works during an outage, and the server gets the token later`(
        error: TokenCacheError?
    ) async throws {
        if let error { server.fail(true, error) } else { server.gate.shut() }
        let cache = layered(patience: .milliseconds(10))
        let session = patientSession(cache: cache, now: { [clock] in clock.now })
        // At the start, and the user does not wait for its end.
        let silent = Task { try await session.open(patience: .milliseconds(10)) }
        if error == nil { await server.gate.reached() }
        #expect(try await session.open(patience: .milliseconds(10)) { token("one") } == .open)
        _ = await silent.result
        #expect(disk.information?.token == "one")
        server.fail(false)
        server.gate.open()
        try await cache.synchronize()
        #expect(server.information?.token == "one")
    }

    // MARK: - Writing

    @Test func `writes without the server are sent later, also after a restart`() async throws {
        let (one, two) = (token("one"), token("two", at: 1))
        server.fail()
        var cache = layered()
        try await cache.store(one)
        try await cache.store(two)
        #expect(try await cache.fetch() == two)
        await #expect(throws: Trouble.self) { try await cache.synchronize() }
        cache = layered()
        #expect(try await cache.fetch() == two)
        #expect(isQueued)
        server.fail(false)
        try await cache.synchronize()
        #expect(server.information == two)
        #expect(!isQueued)
        // Signing out as well.
        server.fail()
        try await cache.clear()
        #expect(try await cache.fetch() == nil)
        cache = layered()
        #expect(try await cache.fetch() == nil)
        server.fail(false)
        #expect(try await cache.fetch() == nil)
        #expect(server.information == nil)
        #expect(!isQueued)
    }

    /// A cache that gets the answer to the token `slow` once the gate is open.
    private func layered(_ server: VersionedServer, _ gate: Gate) throws -> LayeredTokenCache {
        let transport = server.transport()
        let slow = ScriptedTransport { request, _ in
            let answer = try await transport.send(request)
            if request.text.contains("slow") { await gate.pass() }
            return answer
        }
        return try layered(remote: remote(.session { _ in "tcs_a" }, slow))
    }

    @Test func `a token that waits behind another one on its way does not overwrite a sign-out elsewhere`() async throws
    {
        let (server, gate) = (VersionedServer(), Gate())
        let cache = try layered(server, gate)
        gate.shut()
        let storing = Task { try await cache.store(token("slow")) }
        await gate.reached()
        let later = Task { try await cache.store(token("two")) }
        try await until { disk.information?.token == "two" }
        let other = try layered(disk: TestStorage(), remote: remote(.session { _ in "tcs_b" }, server.transport()))
        #expect(try await other.fetch()?.token == "slow")
        try await other.clear()
        gate.open()
        try await storing.value
        await #expect(throws: TokenCacheError.conflict(current: nil)) { try await later.value }
        #expect([server.token, disk.information?.token] == [nil, nil])
    }

    @Test func `a refresh that is refused takes nothing from a sign-out that waits`() async throws {
        let (server, gate) = (VersionedServer(), Gate())
        let cache = try layered(server, gate)
        try await cache.store(token("one"))
        gate.shut()
        let storing = Task { try await cache.store(token("slow")) }
        await gate.reached()
        let other = token("of a login elsewhere", login: "2")
        server.put(other.text)
        let clearing = Task { try await cache.clear() }
        try await until { disk.information == nil }
        await #expect(throws: TokenCacheError.conflict(current: nil)) { try await cache.storeContinued(token("late")) }
        gate.open()
        _ = try await (storing.value, clearing.value)
        // A sign-out replaces whatever is there when it is made.
        #expect(server.token == nil)
    }

    @Test func `the server is given the time that it asks for`() async throws {
        let clock = HastyClock(longest: .seconds(3_000))
        let transport = ScriptedTransport { request, number in
            if number == 1 { return request.answer("", status: 503, headers: ["Retry-After": "70"]) }
            return request.answer(request.method == "GET" ? Answers.nothing : Answers.stored)
        }
        // A retry comes by itself, though nobody has the cache any more.
        try await layeredCache(remote(transport), on: disk, clock: clock).store(token("one"))
        try await until { !isQueued }
        #expect(clock.sleeps.current.contains(.seconds(70)))
    }

    @Test func `a sign-out that the server is slow to take has its credential when it returns`() async throws {
        /// Waits end once the server was asked.
        struct AskedClock: Clock {
            let gate: Gate
            var now: ContinuousClock.Instant { .now }
            var minimumResolution: Duration { .nanoseconds(1) }
            func sleep(until deadline: ContinuousClock.Instant, tolerance: Duration?) async { await gate.reached() }
        }
        let gate = Gate()
        gate.shut()
        let remote = try remote(
            .session { _ in "tcs_a" },
            ScriptedTransport { request, _ in
                await gate.pass()
                return request.answer(request.method == "GET" ? Answers.nothing : Answers.stored)
            })
        let cache = layeredCache(remote, on: disk, clock: AskedClock(gate: gate))
        // Its session was not asked for before.
        try await cache.clear()
        #expect(disk.record?.write?.credential == Credential(isSession: true, text: "tcs_a"))
        gate.open()
        try await until { !isQueued }
    }

    @Test func `a sign-out that waits has the session of the app, not the one that was sent last`() async throws {
        let (server, session) = (VersionedServer(), Locked("tcs_a"))
        let cache = layered(
            remote: try remote(.session { _ in session.current }, server.transport()))
        try await cache.store(token("one"))
        session.current = "tcs_b"
        server.isDown.current = true
        try await cache.clear()
        #expect(disk.record?.write?.credential?.text == "tcs_b")
    }
}
