#if PostgreSQL
import Dispatch
import Glibc
import Synchronization
import System
import TokenStore

/// Connections to the primary for administration, which are kept open between uses.
///
/// When a connection is needed, the hosts are asked for the primary one after the other, so administration continues after a
/// failover by itself. Requests of clients have other connections, and never wait for these. At the same time there
/// are at most as many calls as the control socket lets commands run, and one of `Upkeep`.
///
/// This search knows nothing of what the handles have found, so it may reach a former primary, which answers with the data that it
/// has, but whose commits do not return. So with `store.durability: synchronous` there is a commit when a connection is made, and
/// another one after each call; see Fence.
///
/// Any thread that may block: `perform` waits for the database, but not beyond its limit.
final class PrimaryConnections: Sendable {
    private struct State {
        var idle: [BlockingConnection] = []
        /// The index of the host that was the primary last.
        var primary = 0
        /// What that host has said of itself; nil before the first connection.
        var facts: HostFacts?
        var isClosed = false
    }

    private let hosts: HostAccess
    private let state = Mutex(State())
    /// Runs the calls of those whose own thread must not block.
    private let threads = DispatchQueue(label: "database administration", attributes: .concurrent)

    /// How many unused connections are kept.
    private static let keptCount = 2
    /// How long the primary is searched for at most, even for work that may take hours.
    private static let searchTime = Duration.seconds(15)
    /// With less time than this, a last attempt would only find that a host has not answered, and hide what it has said before.
    private static let leastTime = Nanoseconds(.seconds(1))
    /// How long a step of a command may take, including the search for a new primary.
    static let stepTime = Duration.seconds(15)
    /// How long the commit of a proof may take; see Fence.
    static let proofTime = Duration.seconds(5)
    /// How often a call is tried if its connection is lost or its transaction rolled back: the call may be the cause.
    static let attempts = 8
    /// How long a host may acknowledge nothing, and how long a statement may wait for a lock there.
    private static let patience = Duration.seconds(10)

    /// - Parameters:
    ///   - options: Where the database is, and how durable a write must be: a host that does not ensure this is not used.
    ///   - store: Refuses calls until it is open, and records what the hosts say of themselves; nil if there is no store.
    init(_ options: PostgresOptions, _ store: PostgresState? = nil) {
        hosts = HostAccess(options: options, state: store)
    }

    var options: PostgresOptions { hosts.options }

    /// What the primary has said of itself; nil before the first connection.
    var facts: HostFacts? { state.withLock(\.facts) }

    /// Runs statements on the primary.
    ///
    /// - Parameters:
    ///   - failure: Makes the error if statements fail.
    ///   - limit: How long the call may take, including the search for the primary and repetitions.
    ///   - isOpening: Whether this call opens the store; no other one may begin before it is open.
    ///   - body: Gets a connection outside of a transaction. It is repeated after a lost connection, a serialization failure or a
    ///     deadlock, so a repetition must do no harm even if an earlier run has changed something.
    func perform<Value>(
        or failure: (StoreFault) -> StoreError = StoreError.write, within limit: Duration = stepTime,
        isOpening: Bool = false, _ body: (BlockingConnection) throws(PostgresError) -> Value
    ) throws(StoreError) -> Value {
        if !isOpening, let refusal = hosts.state?.refusalOfOperators { throw refusal }
        let deadline = MonotonicTime.now + limit
        var attempts = 0
        var searchEnd = min(deadline, .now + Self.searchTime)
        while true {
            var isConnected = false
            do {
                let connection = try take(until: searchEnd).until(deadline)
                isConnected = true
                attempts += 1
                return try use(connection, isRepeated: attempts > 1, body)
            } catch {
                let pause = UInt32.random(in: 50_000...150_000)
                if isConnected { searchEnd = min(deadline, .now + Self.searchTime) }
                guard error.mayRetry, attempts < Self.attempts,
                    MonotonicTime.now + .microseconds(pause) + Self.leastTime < searchEnd
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
        do {
            let value = try body(connection)
            // Also after a write: if it has found nothing to change, it may have looked at a former primary; if it was committed
            // with a warning, or by an earlier attempt, it may not be on a second machine yet.
            if hosts.options.needsProof || isRepeated {
                try Fence.prove(connection, within: Self.proofTime)
                // By now its commits may return without a standby.
                try hosts.check(connection)
            }
            keep(connection)
            return value
        } catch {
            if !error.endsConnection { keep(connection) }
            // With proofs, a commit that waits for a standby is not canceled: that would let others read what it has written. Only
            // few commits can wait, as the next connection must first prove that commits return.
            if case .timedOut = error, !hosts.options.needsProof { connection.postgres.cancelSoon() }
            throw error
        }
    }

    /// Like `perform`, for what opens the store.
    func performOpening<Value>(
        within limit: Duration, _ body: (BlockingConnection) throws(PostgresError) -> Value
    ) throws(StoreOpenError) -> Value {
        do {
            return try perform(or: StoreError.unavailable, within: limit, isOpening: true, body)
        } catch {
            if case .unavailable(let fault) = error { throw .store(fault) }
            throw .store(StoreFault("\(error)"))
        }
    }

    /// Like `perform`, for callers whose thread must not block.
    func performOnThread<Value: Sendable>(
        or failure: @escaping @Sendable (StoreFault) -> StoreError = StoreError.write,
        within limit: Duration = stepTime,
        _ body: @escaping @Sendable (BlockingConnection) throws(PostgresError) -> Value
    ) async throws(StoreError) -> Value {
        try await onThread { () throws(StoreError) in try self.perform(or: failure, within: limit, body) }
    }

    /// Runs a function on a thread that may block.
    func onThread<Value: Sendable>(
        _ body: @escaping @Sendable () throws(StoreError) -> Value
    ) async throws(StoreError) -> Value {
        // The body may use keys, which are not known until the store is open.
        if let refusal = hosts.state?.refusalOfOperators { throw refusal }
        let outcome: Result<Value, StoreError> = await withCheckedContinuation { continuation in
            threads.async { continuation.resume(returning: Result(catching: body)) }
        }
        return try outcome.get()
    }

    /// Closes the unused connections, and makes further calls fail.
    ///
    /// A running call ends by itself.
    func close() {
        state.withLock { state in
            state.isClosed = true
            state.idle = []
        }
    }

    // MARK: - Connections

    /// Takes a kept connection that still leads to the primary, or makes a new one.
    private func take(until deadline: MonotonicTime) throws(PostgresError) -> BlockingConnection {
        while let kept = state.withLock({ $0.idle.popLast() }) {
            // The role and the settings of the host may have changed.
            if (try? hosts.check(kept.until(min(deadline, .now + .seconds(2))))) != nil { return kept }
        }
        return try connect(until: deadline)
    }

    private func keep(_ connection: BlockingConnection) {
        guard !connection.postgres.isLost else { return }
        state.withLock { if !$0.isClosed, $0.idle.count < Self.keptCount { $0.idle.append(connection) } }
    }

    /// Connects to the primary; the connection belongs to the caller alone.
    func connect(until deadline: MonotonicTime) throws(PostgresError) -> BlockingConnection {
        let all = hosts.options.hosts
        let first = state.withLock(\.primary)
        var faults: [(host: DatabaseHost, error: PostgresError)] = []
        for step in all.indices {
            let index = (first + step) % all.count
            // Each host gets an equal part of the time that is left, so one that does not answer leaves the others theirs.
            let limit = Nanoseconds(count: (deadline - .now).count / UInt64(all.count - step))
            do {
                let (connection, facts) = try hosts.connect(
                    to: index, patience: Self.patience, lockTimeout: Self.patience, until: .now + limit)
                state.withLock { ($0.primary, $0.facts) = (index, facts) }
                if hosts.options.needsProof { try Fence.prove(connection, within: Self.proofTime) }
                return connection.until(deadline)
            } catch {
                faults.append((all[index], error))
            }
        }
        guard faults.count != 1 else { throw faults[0].error }
        let text = "no host takes writes: \(faults.map { "\($0.host): \($0.error)" }.joined(separator: "; "))"
        throw faults.contains { $0.error.mayRetry } ? .connection(text) : .unexpected(text)
    }
}
#endif
