import Foundation
import TestSupport
import Testing

@testable import TokenCacheClient

@Suite struct LayeredTokenCacheTests {
    let clock = TestClock()
    let directory: TemporaryDirectory
    let local = MemoryCache()
    let server = MemoryCache()
    var queue: URL { URL(filePath: directory.path).appending(path: "queue.json") }

    init() throws {
        directory = try TemporaryDirectory()
    }

    private func token(_ text: String, at offset: TimeInterval = 0) -> TokenInformation {
        TokenInformation(token: text, refreshDate: clock.now + offset)
    }

    /// A cache whose retries never come by themselves.
    private func layered(
        local: (any TokenCaching)? = nil, remote: (any TokenCaching)? = nil, patience: Duration = .seconds(20)
    )
        -> LayeredTokenCache
    {
        LayeredTokenCache(
            local: local ?? self.local, remote: remote ?? server, queue: queue, clock: WaitingClock(),
            patience: patience, now: { [clock] in clock.now })
    }

    private var isQueued: Bool { FileManager.default.fileExists(atPath: queue.path) }

    @Test func `a second device starts with the token of the first`() async throws {
        let one = token("one")
        try await layered().cache(one)
        #expect(server.information == one)
        #expect(local.information == one)
        #expect(!isQueued)
        let second = MemoryCache()
        #expect(try await layered(local: second).fetch() == one)
        #expect(second.information == one)
        // Signed out there, the first device learns of it at its next fetch.
        try await layered(local: second).clear()
        #expect(try await layered().fetch() == nil)
        #expect(local.information == nil)
    }

    @Test func `without the server, what is on the device counts`() async throws {
        let one = token("one")
        try await layered().cache(one)
        server.fail()
        #expect(try await layered().fetch() == one)
        let empty = layered(local: MemoryCache())
        // Unknown, not none.
        await #expect(throws: Trouble.self) { try await empty.fetch() }
        #expect(await empty.remoteError is Trouble)
        server.fail(false)
        #expect(try await empty.fetch() == one)
        #expect(await empty.remoteError == nil)
    }

    @Test func `a server that is slow is waited for only a moment, and its answer is kept later`() async throws {
        let (one, two) = (token("one"), token("two"))
        try await layered().cache(one)
        try await server.cache(two)
        server.gate.shut()
        let cache = layered(patience: .zero)
        #expect(try await cache.fetch() == one)
        server.gate.open()
        try await until { local.information == two }
    }

    @Test func `an answer from before a write is not taken for the present`() async throws {
        let (one, two) = (token("one"), token("two"))
        try await layered().cache(one)
        server.gate.shut()
        let cache = layered(patience: .zero)
        #expect(try await cache.fetch() == one)
        // While the first fetch is still under way; the server has forgotten everything.
        server.contents.withLock { $0.information = nil }
        try await cache.cache(two)
        server.gate.open()
        try await cache.synchronize()
        #expect(local.information == two)
        #expect(server.information == two)
    }

    /// A server whose answers to a fetch are under way for long.
    private struct SlowAnswers: TokenCaching {
        let inner: MemoryCache
        let gate = Gate()
        func fetch() async throws -> TokenInformation? {
            let found = try await inner.fetch()
            await gate.pass()
            return found
        }
        func cache(_ information: TokenInformation) async throws { try await inner.cache(information) }
        func clear() async throws { try await inner.clear() }
    }

    @Test func `an answer that was overtaken by a write that has been sent is not kept`() async throws {
        let (one, two) = (token("one"), token("two"))
        try await layered().cache(one)
        let slow = SlowAnswers(inner: server)
        let cache = layered(remote: slow)
        slow.gate.shut()
        let fetching = Task { try await cache.fetch() }
        await slow.gate.reached()
        try await cache.cache(two)
        #expect(server.information == two)
        #expect(!isQueued)
        slow.gate.open()
        #expect(try await fetching.value == two)
        #expect(local.information == two)
    }

    @Test func `writes without the server are sent later, also after a restart`() async throws {
        let (one, two) = (token("one"), token("two", at: 1))
        server.fail()
        var cache = layered()
        try await cache.cache(one)
        try await cache.cache(two)
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
        clock.advance(by: 10)
        try await cache.clear()
        #expect(try await cache.fetch() == nil)
        cache = layered()
        #expect(try await cache.fetch() == nil)
        server.fail(false)
        #expect(try await cache.fetch() == nil)
        #expect(server.information == nil)
        #expect(!isQueued)
    }

    @Test func `an older write never replaces a newer one`() async throws {
        let (old, new) = (token("old"), token("new", at: 60))
        server.fail()
        try await layered().cache(old)
        server.fail(false)
        try await server.cache(new)
        try await layered().synchronize()
        #expect(server.information == new)
        #expect(try await layered().fetch() == new)
        #expect(local.information == new)
        #expect(!isQueued)
        // Nor does a sign-out from before a login elsewhere.
        server.fail()
        try await layered().clear()
        server.fail(false)
        let login = token("login", at: 60)
        try await server.cache(login)
        clock.advance(by: 120)
        #expect(try await layered().fetch() == login)
        // A newer one does.
        server.fail()
        let newest = token("newest")
        try await layered().cache(newest)
        clock.advance(by: 120)
        server.fail(false)
        try await layered().synchronize()
        #expect(server.information == newest)
    }

    @Test func `a retry comes by itself`() async throws {
        server.fail()
        let cache = LayeredTokenCache(
            local: local, remote: server, queue: queue, clock: HastyClock(longest: .seconds(3_000)),
            patience: .seconds(20),
            now: { [clock] in clock.now })
        let one = token("one")
        try await cache.cache(one)
        server.fail(false)
        try await until { server.information == one }
        try await until { !isQueued }
    }

    @Test(arguments: 0..<4)
    func `a process that ends in between leaves what the next one finishes`(step: Int) async throws {
        let (one, two) = (token("one"), token("two", at: 1))
        try await layered().cache(one)
        // The steps of a write, up to which the process came.
        if step >= 1 {
            try WriteQueue(file: PrivateFile(url: queue)).write(
                .init(information: two, base: .anything, madeAt: clock.now))
        }
        if step >= 2 { try await local.cache(two) }
        if step >= 3 { try await server.cache(two) }
        let expected = step == 0 ? one : two
        #expect(try await layered().fetch() == expected)
        #expect(local.information == expected)
        #expect(server.information == expected)
        #expect(!isQueued)
    }

    @Test func `many who fetch at once get the same answer, and wait for the same write`() async throws {
        let one = token("one")
        try await server.cache(one)
        server.gate.shut()
        let empty = layered()
        let tasks = (0..<50).map { _ in Task { try await empty.fetch() } }
        await server.gate.reached()
        server.gate.open()
        for task in tasks { #expect(try await task.value == one) }

        server.fail()
        let two = token("two", at: 1)
        try await empty.cache(two)
        server.fail(false)
        server.gate.shut()
        let later = layered()
        let waiting = (0..<50).map { _ in Task { try await later.fetch() } }
        await server.gate.reached()
        server.gate.open()
        for task in waiting { #expect(try await task.value == two) }
        #expect(server.information == two)
    }

    @Test func `a queue that cannot be read is unknown`() async throws {
        try await layered().cache(token("one"))
        for item in ["", "{", #"{"format":2}"#, #"{"format":1,"id":"a"}"#] {
            try Data(item.utf8).write(to: queue)
            await #expect(throws: TokenCacheError.self) { try await layered().fetch() }
            await #expect(throws: TokenCacheError.self) { try await layered().synchronize() }
        }
        let two = token("two")
        try await layered().cache(two)
        #expect(try await layered().fetch() == two)
    }

    @Test func `a queue that cannot be written changes nothing`() async throws {
        let one = token("one")
        try await layered().cache(one)
        let cache = LayeredTokenCache(
            local: local, remote: server, queue: URL(filePath: "/proc/none/queue.json"), now: { [clock] in clock.now })
        await #expect(throws: TokenCacheError.self) { try await cache.cache(token("two")) }
        #expect(local.information == one)
        #expect(server.information == one)
    }

    @Test func `a local cache that fails is an error, and the token is in the queue`() async throws {
        local.fail()
        let cache = layered()
        await #expect(throws: Trouble.self) { try await cache.cache(token("one")) }
        local.fail(false)
        #expect(try await cache.fetch()?.token == "one")
        #expect(server.information?.token == "one")
    }

    @Test(arguments: 0..<30 as Range<UInt64>)
    func `whatever fails in between, the last write wins on both sides`(seed: UInt64) async throws {
        var random = SeededGenerator(seed: seed)
        var cache = layered(patience: .milliseconds(1))
        var expected: TokenInformation?
        for step in 0..<40 {
            clock.advance(by: 1)
            server.fail(Int.random(in: 0..<3, using: &random) == 0)
            switch Int.random(in: 0..<10, using: &random) {
            case 0..<4:
                let new = token("\(step)")
                try await cache.cache(new)
                expected = new
            case 4:
                try await cache.clear()
                expected = nil
            case 5: cache = layered(patience: .milliseconds(1))
            case 6: try? await cache.synchronize()
            default:
                if let found = try? await cache.fetch() {
                    #expect(found == expected, "step \(step)")
                } else {
                    #expect(local.information == nil || expected == nil)
                }
            }
        }
        server.fail(false)
        try await cache.synchronize()
        #expect(server.information == expected)
        #expect(try await cache.fetch() == expected)
    }
}

/// Two devices of one user, through a server with and without versions.
@Suite struct TwoDevicesTests {
    let clock = TestClock()
    let directory: TemporaryDirectory

    init() throws {
        directory = try TemporaryDirectory()
    }

    /// A device whose app is started anew.
    private func device(_ number: Int, _ server: VersionedServer, _ local: any TokenCaching, hasVersions: Bool) throws
        -> LayeredTokenCache
    {
        let url = try #require(URL(string: "https://tokens.example.com/token.php"))
        let remote = try RemoteTokenCache(
            url: url, identity: hasVersions ? .session { "tcs_\(number)" } : .uniqueID("a"),
            transport: server.transport(), retries: RetryPolicy(attempts: 1))
        return LayeredTokenCache(
            local: local, remote: remote, queue: URL(filePath: directory.path).appending(path: "queue\(number)"),
            clock: WaitingClock(), patience: .seconds(20), now: { [clock] in clock.now })
    }

    @Test(arguments: 0..<30 as Range<UInt64>, [true, false])
    func `whoever is without a network, the newest token wins everywhere`(seed: UInt64, hasVersions: Bool) async throws
    {
        var random = SeededGenerator(seed: seed)
        let server = VersionedServer(hasVersions: hasVersions)
        let locals = [MemoryCache(), MemoryCache()]
        var devices = try (0..<2).map { try device($0, server, locals[$0], hasVersions: hasVersions) }
        var newest: TokenInformation?
        for step in 0..<60 {
            clock.advance(by: 1)
            server.isDown.withLock { $0 = Int.random(in: 0..<3, using: &random) == 0 }
            let number = Int.random(in: 0..<2, using: &random)
            switch Int.random(in: 0..<6, using: &random) {
            case 0: devices[number] = try device(number, server, locals[number], hasVersions: hasVersions)
            case 1, 2: _ = try? await devices[number].fetch()
            case 3: try? await devices[number].synchronize()
            default:
                let token = TokenInformation(token: "\(step)", refreshDate: clock.now)
                newest = token
                try await devices[number].cache(token)
            }
        }
        server.isDown.withLock { $0 = false }
        for device in devices { try await device.synchronize() }
        for (device, local) in zip(devices, locals) {
            #expect(try await device.fetch() == newest)
            #expect(local.information == newest)
        }
        #expect(!FileManager.default.fileExists(atPath: directory.path + "/queue0"))
    }

    @Test func `of two refreshes at once the older one learns of the newer, and a sign-out elsewhere counts`()
        async throws
    {
        let server = VersionedServer()
        let locals = [MemoryCache(), MemoryCache()]
        let devices = try (0..<2).map { try device($0, server, locals[$0], hasVersions: true) }
        for device in devices { #expect(try await device.fetch() == nil) }
        let newer = TokenInformation(token: "newer", refreshDate: clock.now + 1)
        let older = TokenInformation(token: "older", refreshDate: clock.now)
        try await devices[0].cache(newer)
        await #expect(throws: TokenCacheError.conflict(current: newer)) { try await devices[1].cache(older) }
        #expect(locals[1].information == newer)
        try await devices[0].clear()
        let refreshed = TokenInformation(token: "refreshed", refreshDate: clock.now + 2)
        await #expect(throws: TokenCacheError.conflict(current: nil)) { try await devices[1].cache(refreshed) }
        #expect(locals[1].information == nil)
        // A login is another matter: once it is known, the sign-out may be replaced.
        let session = Session(cache: devices[1], now: { [clock] in clock.now })
        try await session.open(login: { refreshed })
        #expect(try await devices[0].fetch() == refreshed)
    }
}

/// A real clock on which nothing but short waits ends.
struct WaitingClock: Clock {
    let clock = ContinuousClock()
    var now: ContinuousClock.Instant { clock.now }
    var minimumResolution: Duration { clock.minimumResolution }

    func sleep(until deadline: ContinuousClock.Instant, tolerance: Duration?) async throws {
        if now.duration(to: deadline) < .milliseconds(100) {
            try await clock.sleep(until: deadline, tolerance: tolerance)
        } else {
            try await Task.sleep(for: .seconds(3_600))
        }
    }
}
