import Foundation
import TestSupport
import Testing

@testable import TokenCacheClient

@Suite struct SharedRefreshTests {
    private static let week = Duration.seconds(7 * 86_400)

    /// The user's devices, on which the user is logged in.
    private func devices(_ count: Int, _ world: RefreshWorld, _ random: inout SeededGenerator) -> [RefreshingDevice] {
        let devices = (0..<count).map { _ in
            RefreshingDevice(world, offset: .random(in: -43_200...43_200, using: &random))
        }
        world.server.put(devices[0].grant(1).text)
        return devices
    }

    @Test(arguments: 0..<5 as Range<UInt64>, [true, false])
    func `of twenty devices one refreshes at each expiry, whichever are killed, and whatever their clocks say`(
        seed: UInt64, repeatsAnswers: Bool
    ) async throws {
        var random = SeededGenerator(seed: seed)
        let world = RefreshWorld(repeatsAnswers: repeatsAnswers)
        defer { world.finish() }
        let devices = devices(20, world, &random)
        var (processes, next) = ([Int: RefreshingDevice](), 0)
        func start(_ device: RefreshingDevice) async throws {
            let process = next
            next += 1
            processes[process] = device
            // `start` throws for a wrong URL only.
            await world.run { try? device.start(process) }
        }
        for expiry in 1...3 {
            world.advance(by: Self.week)
            // A session keeps the process that it began with.
            for device in devices.shuffled(using: &random) {
                device.session.current = nil
                try await start(device)
            }
            let began = world.time
            var kills = 0
            // Devices that stay off until the others are done.
            var off: [RefreshingDevice] = []
            while true {
                guard let process = world.ready().randomElement(using: &random), let device = processes[process] else {
                    if off.isEmpty { break }
                    try await start(off.removeLast())
                    continue
                }
                // A result that only a dead device has is lost, unless the provider gives the same one again.
                let isStored = world.server.token == "access \(world.provider.withLock { $0.current })"
                let isHolder = world.server.row.withLock { $0.text?.contains(device.disk.device) == true }
                guard kills < 10, Int.random(in: 0..<(isHolder ? 4 : 20), using: &random) == 0,
                    isStored || repeatsAnswers
                else {
                    await world.step(process)
                    continue
                }
                kills += 1
                world.kill(process)
                device.session.current = nil
                if Bool.random(using: &random) { try await start(device) } else { off.append(device) }
            }
            // With the longest pause between two looks.
            #expect(world.time - began <= (RefreshLease.time + .seconds(5)) * (kills + 1))
            #expect(world.provider.withLock { $0.reuses } == 0)
            #expect(world.provider.withLock { $0.current } == expiry + 1)
            #expect(Set(devices.map { $0.token?.token }) == ["access \(expiry + 1)"])
        }
    }

    // MARK: - With one device or two

    /// A session over a server's cache, with or without a copy on the device.
    private func session(_ server: VersionedServer, isLayered: Bool = true, disk: TestStorage = TestStorage()) throws
        -> TokenSession
    {
        let remote = try remote(.session { _ in "tcs_a" }, server.transport())
        let layered = layeredCache(remote, on: disk, patience: .seconds(3_600))
        return TokenSession(cache: isLayered ? layered : remote, clock: clock)
    }

    private func put(_ token: TokenInformation, on server: VersionedServer, lease: String? = nil) {
        server.put(token.text(with: lease))
    }

    private let clock = HastyClock()
    private let one = TokenInformation(token: "one", loginID: "1", refreshToken: "1")
    private let two = TokenInformation(token: "two", loginID: "1", refreshToken: "2")

    @Test(arguments: [true, false])
    func `a lease on the token that was exchanged does not undo the exchange, and is seen by no app`(isLayered: Bool)
        async throws
    {
        let server = VersionedServer()
        put(one, on: server)
        let session = try session(server, isLayered: isLayered)
        try await session.open(patience: Self.week)
        let new = try await session.token(forcingRefresh: true) { old in
            #expect(old == one)
            let text = server.row.withLock { $0.text } ?? ""
            let leased = try TokenInformation(text: text)
            #expect(leased?.others.keys.sorted() == ["TokenCacheClient:RefreshLease"])
            put(one, on: server, lease: RefreshLease.text(for: "one", of: "another device"))
            return two
        }
        #expect(new == two)
        await session.close()
        #expect(server.row.withLock { $0.text } == two.text)
        // A client without leases has copied one to the next token: nobody waits for it.
        put(two, on: server, lease: RefreshLease.text(for: "one", of: "another device"))
        #expect(try await session.open(patience: Self.week) == .open)
        _ = try await session.token(forcingRefresh: true) { _ in one }
        #expect(session.currentToken == one)
        // The limit of `close`.
        #expect(clock.sleeps.current == [.seconds(10)])
    }

    @Test(arguments: [true, false])
    func `a token that a server has marked as spent is not sent to the provider`(isLayered: Bool) async throws {
        let server = VersionedServer()
        put(one, on: server)
        let session = try session(server, isLayered: isLayered)
        try await session.open(patience: Self.week)
        put(one, on: server, lease: RefreshLease.spent("one"))
        for _ in 0..<2 {
            await #expect(throws: TokenSessionError.invalidGrant) {
                try await session.token(forcingRefresh: true) { _ in
                    Issue.record("the provider was asked")
                    return two
                }
            }
        }
        #expect(session.state.isOpen)
        // Another device has logged in.
        put(two, on: server)
        let three = TokenInformation(token: "three", loginID: "1", refreshToken: "3")
        #expect(try await session.token(forcingRefresh: true) { _ in three } == three)
    }

    @Test(arguments: [true, false])
    func `a refresh token is not used while nobody knows whether it still serves`(hasRefreshToken: Bool) async throws {
        let server = VersionedServer()
        var one = one
        one.refreshToken = hasRefreshToken ? "1" : nil
        put(one, on: server)
        let session = try session(server)
        try await session.open(patience: Self.week)
        server.isDown.current = true
        if hasRefreshToken {
            await #expect(throws: TokenCacheError.unreachable(code: -1004)) {
                try await session.token(forcingRefresh: true) { _ in throw Trouble() }
            }
        } else {
            let new = try await session.token(forcingRefresh: true) { _ in two }
            #expect(new == two)
        }
        #expect(session.state.isOpen)
    }

    @Test(.timeLimit(.minutes(30)), arguments: [true, false], [true, false])
    func `behind a proxy that changes entity tags a token is refreshed without a lease`(isLayered: Bool, isWeak: Bool)
        async throws
    {
        let server = VersionedServer()
        put(one, on: server)
        let inner = server.transport()
        let remote = try remote(
            .session { _ in "tcs_a" },
            ScriptedTransport { request, _ in
                var response = try await inner.send(request)
                response.headers["etag"] = response.headers["etag"].map {
                    isWeak ? "W/" + $0 : $0.dropLast() + "-gzip\""
                }
                return response
            })
        let session = TokenSession(cache: isLayered ? layeredCache(remote) : remote, clock: clock)
        try await session.open(patience: Self.week)
        #expect(try await session.token(forcingRefresh: true) { _ in two } == two)
        try await until { server.token == "two" }
    }

    @Test(.timeLimit(.minutes(30)))
    func `on a full disk, what another device has refreshed is refreshed further`() async throws {
        let (server, disk) = (VersionedServer(), TestStorage())
        put(one, on: server)
        let session = try session(server, disk: disk)
        try await session.open(patience: Self.week)
        disk.fillDisk()
        put(two, on: server)
        let three = TokenInformation(token: "three", loginID: "1", refreshToken: "3")
        let new = try await session.token(forcingRefresh: true) { old in
            #expect(old == two)
            return three
        }
        #expect(new == three)
    }

    // MARK: - Where the server refreshes

    /// A session without a refresh of its own, whose server answers with this advice.
    private func session(
        _ server: VersionedServer, advice: Locked<String?>, patience: Duration = .seconds(3_600),
        time: Locked<Date> = Locked(Date()), gate: Gate = Gate(), isLayered: Bool = true
    ) throws -> TokenSession {
        let inner = server.transport()
        let transport = ScriptedTransport { request, _ in
            await gate.pass()
            var response = try await inner.send(request)
            response.headers["token-refresh"] = advice.current
            return response
        }
        let remote = try remote(.session { _ in "tcs_a" }, transport)
        let cache: any TokenCaching = isLayered ? layeredCache(remote, patience: patience) : remote
        return TokenSession(cache: cache, clock: WaitingClock(), now: { time.current })
    }

    @Test(arguments: [true, false])
    func `nobody has to log in while the server cannot refresh a token yet, only when it never will`(isLayered: Bool)
        async throws
    {
        let (server, advice, time) = (VersionedServer(), Locked<String?>("later"), Locked(Date()))
        var expired = one
        expired.expirationDate = time.current - 1_800
        put(expired, on: server)
        let session = try session(server, advice: advice, time: time, isLayered: isLayered)
        let later = TokenCacheError.unavailable(status: 200, retryAfter: nil)
        for _ in 0..<2 { await #expect(throws: later) { try await session.open() } }
        await #expect(throws: later) {
            try await session.open(loginIfUnknown: false) {
                Issue.record("the user was asked")
                return two
            }
        }
        // Its network fails as well.
        server.isDown.current = true
        await #expect(throws: TokenCacheError.unreachable(code: -1004)) { try await session.open() }
        server.isDown.current = false
        advice.current = "login"
        #expect(try await session.open() == .created)
        advice.current = nil
        // A provider that never says why it refuses a token does not keep its user out for good.
        advice.current = "later"
        time.current += 3_600
        #expect(try await session.open() == .created)
        advice.current = nil
        var new = two
        new.expirationDate = time.current + 3_600
        put(new, on: server)
        #expect(try await session.open() == .open)
        time.current += 3_600 + 1_800
        advice.current = "later"
        await #expect(throws: later) { try await session.token() }
        advice.current = "login"
        await #expect(throws: TokenSessionError.expired) { try await session.token() }
    }

    @Test func `a session waits for a server that refreshes an expired token longer than its cache does`() async throws
    {
        let server = VersionedServer()
        var expired = one
        expired.expirationDate = Date() - 3_600
        put(expired, on: server)
        let gate = Gate()
        let session = try session(server, advice: Locked(nil), patience: .milliseconds(1), gate: gate)
        #expect(try await session.open(patience: Self.week) == .created)
        gate.shut()
        await #expect(throws: TokenCacheError.timedOut) { try await session.open(patience: .milliseconds(1)) }
        let opening = Task { try await session.open(patience: Self.week) }
        await gate.reached()
        put(two, on: server)
        gate.open()
        #expect(try await opening.value == .open)
    }

    @Test func `a session that is closed during a refresh leaves the new token to the next one`() async throws {
        let server = VersionedServer()
        put(one, on: server)
        let session = try session(server)
        try await session.open(patience: Self.week)
        await #expect(throws: TokenSessionError.closed) {
            try await session.token(forcingRefresh: true) { _ in
                await session.close()
                return two
            }
        }
        try await until { server.token == "two" }
    }

    @Test func `a session that could not take its lease back does not wait for it`() async throws {
        let server = VersionedServer()
        put(one, on: server)
        let session = try session(server, isLayered: false)
        try await session.open(patience: Self.week)
        await #expect(throws: Trouble.self) {
            try await session.token(forcingRefresh: true) { _ in
                server.isDown.current = true
                throw Trouble()
            }
        }
        server.isDown.current = false
        #expect(try await session.token(forcingRefresh: true) { _ in two } == two)
        #expect(clock.sleeps.current == [])
    }

    @Test func `a program may end when its session is closed, as a refresh has ended then`() async throws {
        let (server, provider) = (VersionedServer(), Gate())
        put(one, on: server)
        provider.shut()
        let session = patientSession(cache: layeredCache(try remote(.session { _ in "tcs_a" }, server.transport())))
        try await session.open(patience: Self.week)
        let refreshed = Task {
            try await session.token(forcingRefresh: true) { _ in
                await provider.pass()
                return two
            }
        }
        await provider.reached()
        let closing = Task { await session.close() }
        await #expect(throws: TokenSessionError.closed) { try await refreshed.value }
        provider.open()
        await closing.value
        #expect(server.token == "two")
    }

    @Test(arguments: [true, false], [true, false])
    func `an expired token is refreshed at the next start, if its session can do that`(
        hasRefreshToken: Bool, isRefused: Bool
    ) async throws {
        var old = one
        old.expirationDate = isRefused ? .distantFuture : Date() - 3_600
        old.refreshToken = hasRefreshToken ? "1" : nil
        let cache = MemoryCache(old)
        let session = TokenSession(cache: cache, refresh: { [two] _ in two }, clock: clock)
        if isRefused {
            try await session.open(patience: Self.week)
            await session.invalidate(old)
            await session.close()
        }
        #expect(try await session.open(patience: Self.week) == (hasRefreshToken ? .open : .created))
        if hasRefreshToken { #expect(try await session.token() == two) }
    }

    @Test func `a provider's refusal counts only if no other device was faster, and then the user is asked`()
        async throws
    {
        let (server, disk, calls) = (VersionedServer(), TestStorage(), Locked(0))
        put(one, on: server)
        let session = try session(server, disk: disk)
        try await session.open(patience: Self.week)
        let refresh: TokenSession.Refresh = { [self] _ in
            // At first, an old client has used the token, and has just stored the new one.
            calls.withLock { $0 += 1 }
            if calls.current == 1 { put(two, on: server) }
            throw TokenSessionError.invalidGrant
        }
        await session.invalidate(one)
        #expect(try await session.token(refresh: refresh) == two)
        for _ in 0..<2 {
            await session.invalidate(two)
            await #expect(throws: TokenSessionError.invalidGrant) { try await session.token(refresh: refresh) }
        }
        #expect(calls.current == 2)
        #expect(session.state.isOpen)
        await #expect(throws: CancellationError.self) {
            try await session.open(patience: Self.week) { throw CancellationError() }
        }
        for session in [session, try self.session(server, disk: disk)] {
            #expect(try await session.open(patience: Self.week) == .created)
        }
        let login = TokenInformation(token: "three")
        #expect(try await session.open(patience: Self.week) { login } == .open)
        #expect(server.token == "three")
    }
}
