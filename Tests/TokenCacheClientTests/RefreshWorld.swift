import Foundation
import TestSupport
import Testing

@testable import TokenCacheClient

/// A provider whose refresh tokens serve once: it ends the login if one is used again.
struct RotatingProvider {
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
final class RefreshWorld: Sendable {
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
    let provider: Locked<RotatingProvider>

    init(repeatsAnswers: Bool) {
        provider = Locked(RotatingProvider(repeatsAnswers: repeatsAnswers))
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

struct RefreshWorldClock: Clock {
    let world: RefreshWorld
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
final class RefreshingDevice: Sendable {
    let world: RefreshWorld
    let disk = TestStorage()
    /// How far the clock is ahead.
    let offset: TimeInterval
    let session = Locked<TokenSession?>(nil)
    private let isOpen = Locked(false)

    init(_ world: RefreshWorld, offset: TimeInterval) {
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
                cache: cache, clock: RefreshWorldClock(world: world, process: process), now: { [self] in now })
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
