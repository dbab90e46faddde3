#if PostgreSQL
internal import Dispatch
internal import Glibc
internal import Synchronization
internal import System
internal import TokenStore

/// Sessions on the primary for administration, which are kept open between uses.
///
/// The primary is looked for when a session is needed, on one host after the other, so that administration goes on after a
/// failover by itself. Clients never wait for these sessions, as they have connections of their own.
///
/// Any thread that may block: `perform` waits for the database, though never longer than it is told.
final class PrimarySessions: Sendable {
    /// The purpose of a call, for its error text.
    enum Purpose: Sendable {
        case reading, writing

        func error(_ fault: StoreFault) -> StoreError {
            switch self {
            case .reading: .read(fault)
            case .writing: .write(fault)
            }
        }
    }

    private struct State {
        var idle: [(session: BlockingSession, since: MonotonicTime)] = []
        /// The index of the host that was the primary when it was last looked for.
        var primary = 0
        /// What that host is; nil before there was one.
        var facts: HostFacts?
        var isClosed = false
    }

    private let target: ConnectionTarget
    private let durability: StoreDurability
    private let refusal: @Sendable () -> StoreError?
    private let observe: @Sendable (HostFacts, DurabilityRules) -> Void
    private let state = Mutex(State())
    /// How many sessions may be in use at the same time; further calls wait for one.
    private let room = Semaphore(value: 2)
    /// For work that takes hours.
    private let roomForLong = Semaphore(value: 1)
    /// Threads for callers whose own must not block.
    private let threads = DispatchQueue(label: "database administration", attributes: .concurrent)

    /// After this time a session is asked again whether its server takes writes.
    private static let trustedTime = Nanoseconds(.seconds(1))
    /// The first and the longest pause before a call is repeated.
    private static let pauses = (first: Duration.milliseconds(50), longest: Duration.seconds(1))
    /// How long to search for the primary before work that may take hours.
    private static let searchTime = Duration.seconds(15)
    /// How long the commit that proves the primary may take.
    private static let proofTime = Duration.seconds(5)
    /// How long a statement may wait for a lock, on the server.
    private static let lockTime = Duration.seconds(10)
    /// Seconds after which the kernel gives up a connection whose peer acknowledges nothing.
    private static let unanswered = 10

    /// - Parameters:
    ///   - target: Where the hosts are.
    ///   - durability: Where a write must be on disk before it is acknowledged; a host that does not ensure that is not used.
    ///   - refusal: Why no call may begin at present; nil if one may.
    ///   - observe: Told of what a host that takes writes is, and whether it may be used, whenever it was asked.
    init(
        _ target: ConnectionTarget, _ durability: StoreDurability,
        refusal: @escaping @Sendable () -> StoreError? = { nil },
        observe: @escaping @Sendable (HostFacts, DurabilityRules) -> Void = { _, _ in }
    ) {
        (self.target, self.durability, self.refusal, self.observe) = (target, durability, refusal, observe)
    }

    /// Where the database is, for operators.
    var place: String { target.hosts.map(\.description).joined(separator: ", ") }

    /// What the primary is, as of the last connection to it; nil before the first.
    var facts: HostFacts? { state.withLock(\.facts) }

    /// Runs statements on the primary.
    ///
    /// A call that could not begin, as there was no primary, is repeated until its time is over.
    ///
    /// - Parameters:
    ///   - purpose: For the error.
    ///   - limit: How long it may take, the search for the primary and repetitions included.
    ///   - asks: Whether a session that was used a moment ago is asked again what its server is.
    ///   - isLong: Whether it may take minutes or hours. It then has a session of its own, so that nobody has to wait for it, and is
    ///     refused while another such call runs.
    ///   - repeats: Whether the body is harmless a second time, also if its first run has changed something and nobody has
    ///     learned of that; then it is repeated after a lost connection, a serialization failure or a deadlock.
    ///   - body: Gets a session outside of a transaction, and the moment at which it must be done.
    func perform<Value>(
        _ purpose: Purpose = .writing, within limit: Duration, asks: Bool = false, repeats: Bool, isLong: Bool = false,
        _ body: (BlockingSession, MonotonicTime) throws(PostgresError) -> Value
    ) throws(StoreError) -> Value {
        if let refusal = refusal() { throw refusal }
        let deadline = MonotonicTime.now + Nanoseconds(limit)
        try enter(isLong, until: deadline)
        defer { (isLong ? roomForLong : room).signal() }
        var (pause, isRepeated) = (Self.pauses.first, false)
        while true {
            // A primary is not looked for as long as the work may take.
            let start = isLong ? min(deadline, .now + Nanoseconds(Self.searchTime)) : deadline
            let attempt = attempt(until: deadline, beginningUntil: start, asks: asks, isLong: isLong) {
                (session, deadline) throws(PostgresError) in
                let value = try body(session, deadline)
                // Also after a write: one that has found nothing to change may have looked at a former primary, and one that was
                // committed with a warning is on no second machine yet.
                if needsProof || isRepeated { try Self.prove(session, until: deadline) }
                return value
            }
            switch attempt {
            case .done(let value): return value
            case .notBegun(let error):
                guard mayRepeat(error, after: pause, until: start) else { throw .unavailable(StoreFault(error)) }
            case .failed(let error):
                guard repeats, mayRepeat(error, after: pause, until: deadline) else {
                    throw purpose.error(StoreFault(error))
                }
                isRepeated = true
            }
            try rest(&pause)
        }
    }

    /// Whether what a server gives, and what it has taken, counts only after a further commit: one in whose place a standby was
    /// promoted would give what it has, but its commits do not return.
    ///
    /// The primary is looked for here without regard to what the handles have found, so a former one may be found first. No
    /// call succeeds there: a commit is asked for when a session is made, and again after each call.
    private var needsProof: Bool { durability == .synchronous }

    /// Commits something, and thereby has everything that was committed before on the standby as well.
    ///
    /// A first attempt may have been committed without that, for which the second, if it finds nothing to change, does not wait.
    private static func prove(_ session: BlockingSession, until deadline: MonotonicTime) throws(PostgresError) {
        let limit = min(deadline, .now + Nanoseconds(proofTime))
        do throws(PostgresError) {
            try session.transaction(until: limit) { () throws(PostgresError) in
                // Needs no table, so that `migrate` and the check of the tables can be told what is missing.
                try session.run(Fence.sql, until: limit)
            }
        } catch {
            // What it has committed is a message without a meaning.
            if case .timedOut = error { session.connection.cancelSoon() }
            throw error
        }
    }

    private enum Attempt<Value> {
        case done(Value)
        /// There was no session.
        case notBegun(PostgresError)
        case failed(PostgresError)
    }

    private func attempt<Value>(
        until deadline: MonotonicTime, beginningUntil start: MonotonicTime, asks: Bool, isLong: Bool,
        _ body: (BlockingSession, MonotonicTime) throws(PostgresError) -> Value
    ) -> Attempt<Value> {
        let session: BlockingSession
        do throws(PostgresError) {
            session = isLong ? try connect(until: start) : try take(until: start, asks: asks)
        } catch {
            return .notBegun(error)
        }
        do throws(PostgresError) {
            let value = try body(session, deadline)
            if !isLong { keep(session) }
            return .done(value)
        } catch {
            if !error.endsConnection, !isLong { keep(session) }
            // With proofs a commit that waits for a standby is left to wait, as others would read what it has written. There are
            // few of them: the next session has to prove first that commits return.
            if case .timedOut = error, !needsProof { session.connection.cancelSoon() }
            return .failed(error)
        }
    }

    /// As `perform`, for callers whose thread must not block.
    func performOnThread<Value: Sendable>(
        _ purpose: Purpose = .writing, within limit: Duration, repeats: Bool, isLong: Bool = false,
        _ body: @escaping @Sendable (BlockingSession, MonotonicTime) throws(PostgresError) -> Value
    ) async throws(StoreError) -> Value {
        try await onThread { () throws(StoreError) in
            try self.perform(purpose, within: limit, repeats: repeats, isLong: isLong, body)
        }
    }

    /// Runs a function on a thread that may block.
    func onThread<Value: Sendable>(
        _ body: @escaping @Sendable () throws(StoreError) -> Value
    ) async throws(StoreError) -> Value {
        // The body may use keys, and before the store is open there are none.
        if let refusal = refusal() { throw refusal }
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

    /// Closes the sessions that nobody uses, and has further calls fail; one that is under way ends by itself.
    func close() {
        state.withLock { state in
            state.isClosed = true
            state.idle = []
        }
    }

    // MARK: - Sessions

    private func enter(_ isLong: Bool, until deadline: MonotonicTime) throws(StoreError) {
        guard !isLong else {
            if roomForLong.wait(atMost: .zero) { return }
            throw .refused(
                "this process already counts tokens or retires a key, which takes long; try again when it has done so")
        }
        if room.wait(atMost: .nanoseconds((deadline - .now).count)) { return }
        throw .unavailable(
            StoreFault("other work on the database has not left a connection free in time; try again", mayRetry: true))
    }

    private func take(until deadline: MonotonicTime, asks: Bool) throws(PostgresError) -> BlockingSession {
        while let (session, since) = state.withLock({ $0.idle.popLast() }) {
            if isUsable(session, asks: asks, since: since, until: deadline) { return session }
        }
        return try connect(until: deadline)
    }

    private func keep(_ session: BlockingSession) {
        guard !session.connection.isLost else { return }
        state.withLock { if !$0.isClosed { $0.idle.append((session, .now)) } }
    }

    /// Whether a session that was not used for a while still leads to the primary.
    private func isUsable(
        _ session: BlockingSession, asks: Bool, since: MonotonicTime, until deadline: MonotonicTime
    ) -> Bool {
        guard !session.hasUnexpectedInput else { return false }
        guard asks || Self.trustedTime.count < (MonotonicTime.now - since).count else { return true }
        let limit = min(deadline, .now + Nanoseconds(.seconds(2)))
        return (try? primaryFacts(session, until: limit)) != nil
    }

    /// Connects to the primary, for a session that no other call gets.
    func connect(until deadline: MonotonicTime) throws(PostgresError) -> BlockingSession {
        let hosts = target.hosts
        let first = state.withLock(\.primary)
        var faults: [(host: ConnectionTarget.Host, error: PostgresError)] = []
        for step in hosts.indices {
            let index = (first + step) % hosts.count
            // A host that does not answer leaves the others their part of the time.
            let limit = Nanoseconds(count: (deadline - .now).count / UInt64(hosts.count - step))
            do throws(PostgresError) {
                let session = try BlockingSession(
                    connectingWith: target.parameters(for: hosts[index], unanswered: Self.unanswered),
                    until: .now + limit)
                let facts = try primaryFacts(session, until: deadline)
                state.withLock { ($0.primary, $0.facts) = (index, facts) }
                let lockLimit = BlockingSession.parameters(ofLockLimit: Self.lockTime)
                try session.run(BlockingSession.lockLimit, lockLimit, until: deadline)
                if needsProof { try Self.prove(session, until: .now + limit) }
                return session
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
    private func primaryFacts(
        _ session: BlockingSession, until deadline: MonotonicTime
    ) throws(PostgresError) -> HostFacts {
        let facts = try HostFacts(of: session, until: deadline)
        if facts.isInRecovery { throw .statement(.readOnly, "\(facts.address) is a standby") }
        if facts.isReadOnly { throw .statement(.readOnly, "\(facts.address) takes no writes") }
        let rules = DurabilityRules(facts, durability)
        observe(facts, rules)
        if let refusal = rules.refusals.first { throw .unexpected(refusal) }
        return facts
    }

    // MARK: - Repeating

    private func mayRepeat(_ error: PostgresError, after pause: Duration, until deadline: MonotonicTime) -> Bool {
        error.mayRetry && MonotonicTime.now + Nanoseconds(pause) < deadline
    }

    /// Waits before a call is repeated, for a different time in each process.
    private func rest(_ pause: inout Duration) throws(StoreError) {
        guard !state.withLock(\.isClosed) else { throw .closed }
        let nanoseconds = Nanoseconds(pause).count
        usleep(UInt32(UInt64.random(in: nanoseconds / 2...nanoseconds) / 1_000))
        pause = min(pause * 2, Self.pauses.longest)
    }
}
#endif
