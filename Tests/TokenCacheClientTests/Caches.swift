import Dispatch
import Foundation

@testable import TokenCacheClient

/// A time that stands still until it is moved.
final class TestClock: Sendable {
    private let time: Locked<Date>

    init(_ seconds: TimeInterval = 1_700_000_000) {
        time = Locked(Date(timeIntervalSince1970: seconds))
    }

    var now: Date { time.withLock { $0 } }

    func advance(by seconds: TimeInterval) {
        time.withLock { $0 += seconds }
    }
}

struct Trouble: Error {}

extension Locked {
    /// The value at this moment; a change that depends on it needs `withLock`.
    var current: Value {
        get { withLock { $0 } }
        set { withLock { $0 = newValue } }
    }
}

/// A token with a date that is the same in all tests.
func token(_ text: String, login: String? = "1", at offset: TimeInterval = 0) -> TokenInformation {
    TokenInformation(token: text, refreshDate: TestClock().now + offset, loginID: login)
}

/// A session that waits for its cache however busy the machine is.
func patientSession(
    cache: any TokenCaching, permissions: Set<String> = [], appID: String? = nil,
    now: @escaping @Sendable () -> Date = { Date() }
) -> TokenSession {
    TokenSession(cache: cache, permissions: permissions, appID: appID, clock: WaitingClock(), now: now)
}

/// A cache of a device that waits for its server however busy the machine is, and whose retries never come by themselves.
func layeredCache(
    _ remote: any TokenCaching, on disk: any LocalStorage = TestStorage(), patience: Duration = .seconds(20),
    clock: any Clock<Duration> = WaitingClock()
) -> LayeredTokenCache {
    LayeredTokenCache(local: LocalTokenCache(disk, user: "a"), remote: remote, patience: patience, clock: clock)
}

/// A cache in memory that can be told to fail or to wait.
final class MemoryCache: TokenCaching {
    struct Contents {
        var information: TokenInformation?
        /// What everything throws, or only storing.
        var error: (any Error)?
        var storeError: (any Error)?
        var done: [String] = []
    }

    let contents: Locked<Contents>
    /// What each operation waits for, what storing waits for before that, and what the answer to a fetch waits for.
    let (gate, storing, answering) = (Gate(), Gate(), Gate())

    init(_ information: TokenInformation? = nil) {
        contents = Locked(Contents(information: information))
    }

    /// Another way to the same contents.
    init(sharing other: MemoryCache) {
        contents = other.contents
    }

    var information: TokenInformation? { contents.withLock { $0.information } }

    /// The operations that were tried, in order.
    var done: [String] { contents.withLock { $0.done } }

    func fail(_ isFailing: Bool = true, _ error: any Error = Trouble()) {
        contents.withLock { $0.error = isFailing ? error : nil }
    }

    func fetch() async throws -> TokenInformation? {
        let found = try await perform("fetch") { $0.information }
        await answering.pass()
        return found
    }

    func store(_ information: TokenInformation) async throws {
        await storing.pass()
        try await perform("store") { contents in
            if let error = contents.storeError { throw error }
            contents.information = information
        }
    }

    func clear() async throws {
        try await perform("clear") { $0.information = nil }
    }

    private func perform<Result: Sendable>(_ name: String, _ body: (inout Contents) throws -> Result) async throws
        -> Result
    {
        await gate.pass()
        return try contents.withLock { contents in
            Swift.Result {
                contents.done.append(name)
                if let error = contents.error { throw error }
                return try body(&contents)
            }
        }.get()
    }
}

/// A storage in memory whose disk can be full or broken.
final class TestStorage: LocalStorage {
    struct State {
        var item: Data?
        /// What reading or writing throws.
        var readError: TokenCacheError?
        var writeError: TokenCacheError?
        /// Whether anything was done on the actor of the caller.
        var wasOnCallersQueue = false
    }

    static let callersQueue = DispatchSpecificKey<Bool>()
    static let full = TokenCacheError.storage(operation: "write", code: 28)

    let state = Locked(State())
    let isRefreshing = Locked(false)
    /// The slots of other users in the same place.
    let others: [TestStorage]
    /// What another process does once, at the worst moment: after a read, or before the next change gets the lock.
    let interference = Locked<(@Sendable () -> Void)?>(nil)
    let device = UUID().uuidString
    private let turn = NSRecursiveLock()

    init(others: [TestStorage] = []) {
        self.others = others
    }

    func lockRefreshes() -> RefreshLock? {
        RefreshLock(isRefreshing, device: device)
    }

    private func interfere() {
        interference.withLock { interference in
            defer { interference = nil }
            return interference
        }?()
    }

    private func change(_ error: KeyPath<State, TokenCacheError?>?, _ change: (inout State) -> Void)
        throws(TokenCacheError)
    {
        let failure = state.withLock { state -> TokenCacheError? in
            if DispatchQueue.getSpecific(key: Self.callersQueue) == true { state.wasOnCallersQueue = true }
            if let error, let failure = state[keyPath: error] { return failure }
            change(&state)
            return nil
        }
        if let failure { throw failure }
    }

    func read() throws(TokenCacheError) -> Data? {
        var item: Data?
        try change(\.readError) { item = $0.item }
        interfere()
        return item
    }

    func write(_ item: Data) throws(TokenCacheError) {
        try change(\.writeError) { $0.item = item }
    }

    func remove() throws(TokenCacheError) {
        try change(nil) { $0.item = nil }
    }

    func all() -> [any LocalStorage] {
        [self] + others
    }

    func exclusively<Result>(_ body: () throws(TokenCacheError) -> Result) throws(TokenCacheError) -> Result {
        interfere()
        turn.lock()
        defer { turn.unlock() }
        return try body()
    }

    /// The token that a record holds, without regard to failures.
    var information: TokenInformation? { record?.information }

    var record: LocalRecord? { state.withLock { $0.item }.flatMap { try? LocalRecord.read($0).record } }

    func fillDisk(_ isFull: Bool = true) {
        state.withLock { $0.writeError = isFull ? Self.full : nil }
    }
}

/// A door that tasks wait at while it is shut.
final class Gate: Sendable {
    private struct State {
        var isShut = false
        var waiting: [CheckedContinuation<Void, Never>] = []
        var watching: [(count: Int, continuation: CheckedContinuation<Void, Never>)] = []
    }

    private let state = Locked(State())

    func shut() {
        state.withLock { $0.isShut = true }
    }

    func open() {
        let waiting = state.withLock { state in
            state.isShut = false
            defer { state.waiting = [] }
            return state.waiting
        }
        for continuation in waiting { continuation.resume() }
    }

    func pass() async {
        await withCheckedContinuation { continuation in
            let (isOpen, watching) = state.withLock { state -> (Bool, [CheckedContinuation<Void, Never>]) in
                guard state.isShut else { return (true, []) }
                state.waiting.append(continuation)
                let count = state.waiting.count
                let reached = state.watching.filter { $0.count <= count }
                state.watching.removeAll { $0.count <= count }
                return (false, reached.map(\.continuation))
            }
            if isOpen { continuation.resume() }
            for watcher in watching { watcher.resume() }
        }
    }

    /// Waits until so many tasks wait at the door.
    func reached(by count: Int = 1) async {
        await withCheckedContinuation { continuation in
            let isReached = state.withLock { state in
                if state.waiting.count >= count { return true }
                state.watching.append((count, continuation))
                return false
            }
            if isReached { continuation.resume() }
        }
    }
}

/// Waits until other tasks have made a condition true, however busy the machine is.
func until(_ condition: () async throws -> Bool) async throws {
    while try await !condition() { try await Task.sleep(for: .milliseconds(1)) }
}

/// A real clock on which only short waits end.
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

/// A clock on which sleeps end at once, and move the time forward.
struct HastyClock: Clock {
    struct Instant: InstantProtocol {
        var time: Duration
        func advanced(by duration: Duration) -> Instant { Instant(time: time + duration) }
        func duration(to other: Instant) -> Duration { other.time - time }
        static func < (left: Instant, right: Instant) -> Bool { left.time < right.time }
    }

    private let time = Locked(Duration.zero)
    /// Sleeps of this length and longer, such as deadlines, never end.
    var longest = Duration.seconds(25)
    let sleeps = Locked<[Duration]>([])

    var now: Instant { Instant(time: time.withLock { $0 }) }
    var minimumResolution: Duration { .nanoseconds(1) }

    func sleep(until deadline: Instant, tolerance: Duration?) async throws {
        let length = deadline.time - now.time
        guard length < longest else {
            try await Task.sleep(for: .seconds(3_600))
            return
        }
        sleeps.withLock { $0.append(length) }
        time.withLock { $0 = max($0, deadline.time) }
        await Task.yield()
    }
}
