#if PostgreSQL
internal import Glibc
internal import Synchronization
internal import System
package import TokenStore

/// A store on PostgreSQL, which other servers may use at the same time.
///
/// Each handle has connections of its own to the primary, in pipeline mode. What is written is sealed before it is sent.
package final class PostgresTokenStore: TokenStore {
    let options: PostgresOptions
    let state: PostgresState
    private let finder: PrimaryFinder
    private let connections: PrimaryConnections
    private let longWork: PrimaryConnections
    private let upkeep: Upkeep
    /// Nil in the clear.
    private let agreement: StoreAgreement?
    private let opening: StoreOpening?
    private let users: WaitingHandle

    /// - Parameters:
    ///   - options: What the operator has decided.
    ///   - state: Has the keys.
    ///   - connections: For administration.
    ///   - agreement: Has the key ring; nil in the clear, and for tests whose ring is in no file.
    ///   - opening: Nil for tests that need none.
    ///   - upkeep: What a server does beside requests; a command makes no handle but that of `users`, and leaves it to servers.
    init(
        _ options: PostgresOptions, _ state: PostgresState, _ connections: PrimaryConnections,
        _ agreement: StoreAgreement?, _ opening: StoreOpening?, _ upkeep: Upkeep
    ) {
        (self.options, self.state, self.connections) = (options, state, connections)
        (self.agreement, self.opening, self.upkeep) = (agreement, opening, upkeep)
        longWork = connections.forLongWork()
        finder = PrimaryFinder(options.hosts, state) { index, trial in
            Dial(
                options: options, host: options.hosts[index], trial: trial, proofs: state.proofs
            ) { facts, rules in
                state.hosts.note(index, facts)
                if facts.isWritable { state.warn(facts, rules) }
            }
        }
        users = WaitingHandle { [finder] (deliver) throws(StoreError) in
            // One is enough for commands, which wait for one another.
            var one = options
            one.connections = 1
            return try Self.handle(state, one, finder, deliver)
        }
    }

    /// Opens the store.
    ///
    /// - Parameter waits: Whether it is opened later if the database cannot be reached, and serves nobody until then.
    func open(_ opening: StoreOpening, waits: Bool) throws(StoreOpenError) {
        do throws(StoreOpenError) {
            try opening.open()
        } catch {
            guard waits, error.mayRetry else { throw error }
            let first = Mutex<Duration?>(opening.pause(after: error))
            return upkeep.start { [finder] in
                if let pause = first.withLock({ $0.take() }) { return pause }
                let pause = opening.attempt()
                if pause == nil { finder.start() }
                return pause
            }
        }
        startFinding()
    }

    /// The store is open: connections are made from now on, also those that were ordered before.
    func startFinding() { finder.start() }

    package var software: StoreSoftware { StoreSoftware(name: "libpq", version: PostgresLibrary.version) }

    package var summary: String {
        let sealing = agreement != nil ? "sealed" : "in the clear"
        guard let primary = state.hosts.primary else {
            return "PostgreSQL at \(state.hosts.names), not connected yet, \(sealing)"
        }
        return "\(primary.description), \(sealing)"
    }

    package var fault: StoreError? { state.fault }

    package var administrator: any StoreAdministrator {
        PostgresAdministrator(connections, longWork, state, users: users, agreement)
    }

    /// False: other servers write as well.
    package var seesAllWrites: Bool { false }

    package func report(writesTo observer: any WriteObserver) {
        preconditionFailure("nobody learns of the writes of other servers")
    }

    package func makeHandle(
        deliver: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void
    ) throws(StoreError) -> any StoreHandle {
        upkeep.start()
        return try Self.handle(state, options, finder, deliver)
    }

    private static func handle(
        _ state: PostgresState, _ options: PostgresOptions, _ finder: PrimaryFinder,
        _ deliver: @escaping WaitingHandle.Deliver
    ) throws(StoreError) -> any StoreHandle {
        do throws(SystemError) {
            return try PostgresStoreHandle(state, options, finder, deliver: deliver)
        } catch {
            throw .unavailable(StoreFault("a connection's descriptors cannot be watched: \(error)"))
        }
    }

    package func change(_ retention: Retention) async throws(StoreError) {
        state.change(retention)
        upkeep.wake()
    }

    package func finishWrites() {
        state.isClosed.store(true, ordering: .releasing)
        // The handles' loops go on with what was handed over.
        let end = MonotonicTime.now + Nanoseconds(options.timeout)
        while state.waitingRequests.load(ordering: .acquiring) > 0, .now < end { usleep(1_000) }
    }

    package func close() {
        finishWrites()
        opening?.close()
        finder.close()
        upkeep.stop()
        connections.close()
        longWork.close()
    }
}

extension PostgresTokenStore {
    package var metrics: StoreMetrics {
        let counted = state.metrics
        var metrics = StoreMetrics()
        metrics.writes = counted.writes.load(ordering: .relaxed)
        metrics.queuedBytes = state.waitingBytes.load(ordering: .relaxed)
        metrics.queueLimit = state.queueLimit
        metrics.commitTime = counted.roundTrip(.write)
        metrics.groupSize = counted.groupSize
        metrics.expired = counted.expired.load(ordering: .relaxed)
        metrics.isExpiryHeld = state.clock.isHoldingExpiry
        metrics.sealingKey = state.sealing.ring?.active.number
        metrics.unreadableReads = counted.unreadableReads.load(ordering: .relaxed)
        metrics.remote = remote
        return metrics
    }

    private var remote: RemoteStoreMetrics {
        let (counted, primary, open) = (state.metrics, state.hosts.primary, state.connections)
        var remote = RemoteStoreMetrics(
            durability: options.durability, readTime: counted.roundTrip(.read), proofTime: counted.roundTrip(.proof))
        remote.hosts = state.hosts.list(open)
        remote.connections.open = open.values.reduce(0, +)
        remote.connections.pending = counted.pendingConnections.load(ordering: .relaxed)
        remote.connections.wanted = counted.wantedConnections.load(ordering: .relaxed)
        remote.waitingRequests = state.waitingRequests.load(ordering: .relaxed)
        remote.requestLimit = options.requestLimit
        remote.refusedByCount = counted.refusedByCount.load(ordering: .relaxed)
        remote.refusedByBytes = counted.refusedByBytes.load(ordering: .relaxed)
        remote.dropped = counted.dropped.load(ordering: .relaxed)
        remote.retries = counted.retries
        remote.failovers = counted.failovers.load(ordering: .relaxed)
        let lastFailover = counted.lastFailover.load(ordering: .relaxed)
        remote.lastFailover = lastFailover > 0 ? lastFailover : nil
        remote.timeline = primary?.timeline
        remote.proofs = counted.proofs.load(ordering: .relaxed)
        remote.failedProofs = counted.failedProofs.load(ordering: .relaxed)
        remote.heldReads = counted.heldReads.load(ordering: .relaxed)
        remote.proofAge = counted.proofAge(at: .now)
        remote.unacknowledged = counted.unacknowledged.load(ordering: .relaxed)
        remote.clockDifference = primary.map { Double($0.clockDifference) / 1e6 }
        remote.usesTLS = primary?.usesTLS
        remote.missingKeys = counted.missingKeys.load(ordering: .relaxed)
        return remote
    }
}
#endif
