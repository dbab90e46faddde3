import Foundation
import TestSupport
import Testing

@testable import TokenCacheClient

/// A provider whose refresh tokens serve once: it ends the login if one is used again.
private struct Provider {
    /// Whether a token that is used again gives the same answer, until the new one is used.
    let repeatsAnswers: Bool
    /// The number of the refresh token that serves, and of its access token.
    var current = 1
    var reuses = 0

    mutating func exchange(_ old: TokenInformation) -> Int {
        let number = Int(old.refreshToken ?? "") ?? 0
        if number == current {
            current += 1
        } else if number != current - 1 || !repeatsAnswers {
            reuses += 1
        }
        return current
    }
}

/// A world in which one process runs at a time, from one step to the next, so that a seed decides the whole history.
///
/// Each request, each answer and the end of each wait is a step.
private final class World: Sendable {
    struct Killed: Error {}

    private struct State {
        var time = Duration.zero
        var stopped: [Int: (wakes: Duration, continuation: UnsafeContinuation<Bool, Never>)] = [:]
        var killed: [UnsafeContinuation<Bool, Never>] = []
        var isOver = false
        /// The history, which waits for the process that runs.
        var history: UnsafeContinuation<Void, Never>?
    }

    private let state = Locked(State())
    let server = VersionedServer()
    let provider: Locked<Provider>

    init(repeatsAnswers: Bool) {
        provider = Locked(Provider(repeatsAnswers: repeatsAnswers))
    }

    var time: Duration { state.withLock { $0.time } }

    func advance(by duration: Duration) { state.withLock { $0.time += duration } }

    /// What a process does at a step.
    func pass(_ process: Int, after wait: Duration = .zero) async throws {
        let isAlive = await withUnsafeContinuation { continuation in
            let (isOver, history) = state.withLock { state in
                if !state.isOver { state.stopped[process] = (state.time + wait, continuation) }
                defer { state.history = nil }
                return (state.isOver, state.history)
            }
            if isOver { continuation.resume(returning: false) }
            history?.resume()
        }
        if !isAlive { throw Killed() }
    }

    func end() {
        state.withLock { state in
            defer { state.history = nil }
            return state.history
        }?.resume()
    }

    /// Runs a process until its next step or its end.
    func run(_ process: @escaping @Sendable () -> Void) async {
        await withUnsafeContinuation { history in
            state.withLock { $0.history = history }
            process()
        }
    }

    func step(_ process: Int) async {
        guard let stopped = state.withLock({ $0.stopped.removeValue(forKey: process) }) else { return }
        await run { stopped.continuation.resume(returning: true) }
    }

    func kill(_ process: Int) {
        state.withLock { state in
            if let stopped = state.stopped.removeValue(forKey: process) { state.killed.append(stopped.continuation) }
        }
    }

    /// The processes that can go on, in order; if all wait, the first waits end.
    func ready() -> [Int] {
        state.withLock { state in
            let next = state.stopped.values.map(\.wakes).min() ?? state.time
            state.time = max(state.time, next)
            return state.stopped.filter { $0.value.wakes <= state.time }.keys.sorted()
        }
    }

    func finish() {
        let killed = state.withLock { state in
            state.isOver = true
            return state.killed
        }
        for continuation in killed { continuation.resume(returning: false) }
    }
}

private struct WorldClock: Clock {
    let world: World
    let process: Int
    var now: HastyClock.Instant { HastyClock.Instant(time: world.time) }
    var minimumResolution: Duration { .nanoseconds(1) }

    func sleep(until deadline: HastyClock.Instant, tolerance: Duration?) async throws {
        let wait = now.duration(to: deadline)
        // A limit for something that ends in this world.
        if wait > .seconds(1_000) { return try await Task.sleep(for: .seconds(3_600)) }
        try await world.pass(process, after: wait)
    }
}

/// A device of the user; it is started again after its process was killed.
private final class Device: Sendable {
    let world: World
    let disk = TestStorage()
    /// How far the clock is ahead.
    let offset: TimeInterval
    let session = Locked<TokenSession?>(nil)
    private let isOpen = Locked(false)

    init(_ world: World, offset: TimeInterval) {
        (self.world, self.offset) = (world, offset)
    }

    var token: TokenInformation? { session.withLock { $0?.currentToken } }

    var now: Date { Date(timeIntervalSince1970: 1_700_000_000 + offset + world.time.seconds) }

    func grant(_ number: Int) -> TokenInformation {
        TokenInformation(
            token: "access \(number)", expirationDate: now + 10 * 86_400, refreshDate: now, loginID: "1",
            refreshToken: "\(number)")
    }

    /// Opens a session, if there is none, and obtains a token that is good for five days.
    func start(_ process: Int) throws {
        let world = world
        if session.current == nil {
            disk.isRefreshing.current = false
            let transport = world.server.transport()
            let remote = try remote(
                .session { _ in "tcs_a" },
                ScriptedTransport { [isOpen] request, _ in
                    // What opens a session happens at once, as several things may be under way then.
                    guard isOpen.current else { return try await transport.send(request) }
                    try await world.pass(process)
                    let answer = try await transport.send(request)
                    try await world.pass(process)
                    return answer
                })
            let cache = layeredCache(remote, on: disk, patience: .seconds(3_600))
            let new = TokenSession(
                cache: cache, clock: WorldClock(world: world, process: process), now: { [self] in now })
            session.current = new
        }
        guard let session = session.current else { return }
        Task {
            isOpen.current = false
            _ = try? await session.open(patience: .seconds(3_600))
            _ = try? await session.reload()
            isOpen.current = true
            _ = try? await session.token(validFor: .seconds(5 * 86_400)) { [self] old in
                try await world.pass(process)
                let number = world.provider.withLock { $0.exchange(old) }
                try await world.pass(process)
                return grant(number)
            }
            await session.writes.finish()
            world.end()
        }
    }
}

@Suite struct SharedRefreshTests {
    private static let week = Duration.seconds(7 * 86_400)

    /// The user's devices, on which the user is logged in.
    private func devices(_ count: Int, _ world: World, _ random: inout SeededGenerator) -> [Device] {
        let devices = (0..<count).map { _ in
            Device(world, offset: .random(in: -43_200...43_200, using: &random))
        }
        world.server.put(devices[0].grant(1).text)
        return devices
    }

    @Test(arguments: 0..<5 as Range<UInt64>, [true, false])
    func `of twenty devices one refreshes at each expiry, whichever are killed, and whatever their clocks say`(
        seed: UInt64, repeatsAnswers: Bool
    ) async throws {
        var random = SeededGenerator(seed: seed)
        let world = World(repeatsAnswers: repeatsAnswers)
        defer { world.finish() }
        let devices = devices(20, world, &random)
        var (processes, next) = ([Int: Device](), 0)
        func start(_ device: Device) async throws {
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
            var off: [Device] = []
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
        #expect(clock.sleeps.current == [])
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
