#if PostgreSQL
internal import Dispatch
internal import Glibc
internal import Synchronization
internal import System
internal import TokenStore

/// Connections to the primary for administration, which are kept open between uses.
///
/// The primary is looked for when a connection is needed, on one host after the other, so that administration goes on after a
/// failover by itself. Clients never wait for these connections, as they have others.
///
/// The primary is looked for without regard to what the handles have found, so a former one may be found first: one in whose place a
/// standby was promoted would give what it has, but its commits do not return. So a commit is asked for when a connection is made,
/// and again after each call (see Fence), with `store.durability: synchronous`.
///
/// Any thread that may block: `perform` waits for the database, though never longer than it is told.
final class PrimaryConnections: Sendable {
    private struct State {
        var idle: [BlockingConnection] = []
        /// The index of the host that was the primary when it was last looked for.
        var primary = 0
        /// What that host is; nil before there was one.
        var facts: HostFacts?
        var isClosed = false
    }

    private let options: PostgresOptions
    private let store: PostgresState?
    private let state = Mutex(State())
    /// For calls at the same time; further ones wait.
    private let room: System.Semaphore
    /// How many connections are kept that nobody uses.
    private let keptCount: Int
    /// Threads for callers whose own must not block.
    private let threads = DispatchQueue(label: "database administration", attributes: .concurrent)

    /// The longest time that the primary is looked for, also where the work itself may take hours.
    private static let searchTime = Duration.seconds(15)
    /// How long a commit may take that shows that a server is the primary.
    static let proofTime = Duration.seconds(5)
    /// How often a call may lose its connection, or be rolled back: it may be what makes the server's process end.
    static let attempts = 8
    /// How long a statement may wait for a lock, on the server.
    private static let lockTime = Duration.seconds(10)
    /// How long a peer may acknowledge nothing.
    private static let unanswered = Duration.seconds(10)

    /// - Parameters:
    ///   - options: Where the database is, and how durable a write must be: a host that does not ensure that is not used.
    ///   - store: Says why no call may begin at present, and is told of what the hosts are; nil without a store.
    ///   - atOnce: How many calls may run at the same time: one for work that takes hours, for which nobody else is to wait.
    init(_ options: PostgresOptions, _ store: PostgresState? = nil, atOnce: UInt32 = 2) {
        (self.options, self.store) = (options, store)
        (room, keptCount) = (System.Semaphore(value: atOnce), Int(atOnce) - 1)
    }

    /// What the primary is, as of the last connection to it; nil before the first.
    var facts: HostFacts? { state.withLock(\.facts) }

    /// Runs statements on the primary.
    ///
    /// - Parameters:
    ///   - failure: Makes the error of statements that fail.
    ///   - limit: How long it may take, the search for the primary and repetitions included.
    ///   - isOpening: Whether it is what opens the store, before which no other call may begin.
    ///   - body: Gets a connection outside of a transaction. It is repeated after a lost connection, a serialization failure or a
    ///     deadlock, and so must be harmless a second time, also if its first run has changed something.
    func perform<Value>(
        or failure: (StoreFault) -> StoreError = StoreError.write, within limit: Duration, isOpening: Bool = false,
        _ body: (BlockingConnection) throws(PostgresError) -> Value
    ) throws(StoreError) -> Value {
        if !isOpening, let refusal = store?.refusalOfOperators { throw refusal }
        let deadline = MonotonicTime.now + Nanoseconds(limit)
        guard room.wait(atMost: min(limit, Self.searchTime)) else {
            let text = "other work on the database has not left a connection free in time; try again"
            throw .unavailable(StoreFault(text, mayRetry: true))
        }
        defer { room.signal() }
        var attempts = 0
        var searchEnd = min(deadline, .now + Nanoseconds(Self.searchTime))
        while true {
            var isConnected = false
            do throws(PostgresError) {
                let connection = try take(until: searchEnd).until(deadline)
                isConnected = true
                attempts += 1
                return try use(connection, isRepeated: attempts > 1, body)
            } catch {
                let pause = UInt32.random(in: 50_000...150_000)
                if isConnected { searchEnd = min(deadline, .now + Nanoseconds(Self.searchTime)) }
                guard error.mayRetry, attempts < Self.attempts,
                    MonotonicTime.now + Nanoseconds(.microseconds(pause)) < searchEnd
                else {
                    throw attempts > 0 ? failure(StoreFault(error)) : .unavailable(StoreFault(error))
                }
                guard !state.withLock(\.isClosed) else { throw .closed }
                usleep(pause)
            }
        }
    }

    private func use<Value>(
        _ connection: BlockingConnection, isRepeated: Bool,
        _ body: (BlockingConnection) throws(PostgresError) -> Value
    ) throws(PostgresError) -> Value {
        do throws(PostgresError) {
            let value = try body(connection)
            // Also after a write: one that has found nothing to change may have looked at a former primary, and one that was
            // committed with a warning, or by a first attempt, is on no second machine yet.
            if needsProof || isRepeated { try Fence.prove(connection, within: Self.proofTime) }
            keep(connection)
            return value
        } catch {
            if !error.endsConnection { keep(connection) }
            // With proofs a commit that waits for a standby is left to wait, as others would read what it has written. There are
            // few of them: the next connection has to prove first that commits return.
            if case .timedOut = error, !needsProof { connection.postgres.cancelSoon() }
            throw error
        }
    }

    private var needsProof: Bool { options.durability == .synchronous }

    /// As `perform`, before the store is open.
    func performOpening<Value>(
        within limit: Duration, _ body: (BlockingConnection) throws(PostgresError) -> Value
    ) throws(StoreOpenError) -> Value {
        do throws(StoreError) {
            return try perform(or: StoreError.unavailable, within: limit, isOpening: true, body)
        } catch {
            if case .unavailable(let fault) = error { throw .store(fault) }
            throw .store(StoreFault("\(error)"))
        }
    }

    /// As `perform`, for callers whose thread must not block.
    func performOnThread<Value: Sendable>(
        or failure: @escaping @Sendable (StoreFault) -> StoreError = StoreError.write, within limit: Duration,
        _ body: @escaping @Sendable (BlockingConnection) throws(PostgresError) -> Value
    ) async throws(StoreError) -> Value {
        try await onThread { () throws(StoreError) in try self.perform(or: failure, within: limit, body) }
    }

    /// Runs a function on a thread that may block.
    func onThread<Value: Sendable>(
        _ body: @escaping @Sendable () throws(StoreError) -> Value
    ) async throws(StoreError) -> Value {
        // The body may use keys, and before the store is open there are none.
        if let refusal = store?.refusalOfOperators { throw refusal }
        let outcome: Result<Value, StoreError> = await withCheckedContinuation { continuation in
            threads.async {
                do throws(StoreError) {
                    continuation.resume(returning: .success(try body()))
                } catch {
                    continuation.resume(returning: .failure(error))
                }
            }
        }
        return try outcome.get()
    }

    /// Closes the connections that nobody uses, and has further calls fail; one that is under way ends by itself.
    func close() {
        state.withLock { state in
            state.isClosed = true
            state.idle = []
        }
    }

    // MARK: - Connections

    /// One that was kept and still leads to the primary, or a new one.
    private func take(until deadline: MonotonicTime) throws(PostgresError) -> BlockingConnection {
        while let kept = state.withLock({ $0.idle.popLast() }) {
            // Settings change while a connection is open.
            if (try? check(kept.until(min(deadline, .now + Nanoseconds(.seconds(2)))))) != nil { return kept }
        }
        return try connect(until: deadline)
    }

    private func keep(_ connection: BlockingConnection) {
        guard !connection.postgres.isLost else { return }
        state.withLock { if !$0.isClosed, $0.idle.count < keptCount { $0.idle.append(connection) } }
    }

    /// Connects to the primary, for a connection that no other call gets.
    func connect(until deadline: MonotonicTime) throws(PostgresError) -> BlockingConnection {
        let hosts = options.hosts
        let first = state.withLock(\.primary)
        var faults: [(host: DatabaseHost, error: PostgresError)] = []
        for step in hosts.indices {
            let index = (first + step) % hosts.count
            // A host that does not answer leaves the others their part of the time.
            let limit = Nanoseconds(count: (deadline - .now).count / UInt64(hosts.count - step))
            do throws(PostgresError) {
                let parameters = options.parameters(for: hosts[index], unanswered: Self.unanswered)
                let connection = try BlockingConnection(parameters, until: .now + limit)
                let facts = try check(connection)
                state.withLock { ($0.primary, $0.facts) = (index, facts) }
                try connection.limitLocks(to: Self.lockTime)
                if needsProof { try Fence.prove(connection, within: Self.proofTime) }
                return connection.until(deadline)
            } catch {
                faults.append((hosts[index], error))
            }
        }
        guard faults.count != 1 else { throw faults[0].error }
        let text = faults.map { "\($0.host): \($0.error)" }.joined(separator: "; ")
        let mayRetry = faults.contains { $0.error.mayRetry }
        throw mayRetry ? .connection("no host takes writes: \(text)") : .unexpected("no host takes writes: \(text)")
    }

    /// Throws unless the server takes writes, and keeps what it acknowledges.
    @discardableResult
    private func check(_ connection: BlockingConnection) throws(PostgresError) -> HostFacts {
        let facts = try HostFacts(of: connection)
        let rules = DurabilityRules(facts, options.durability)
        if facts.isWritable { store?.note(facts, rules) }
        if let refusal = facts.refusal(rules) { throw refusal }
        return facts
    }
}
#endif
