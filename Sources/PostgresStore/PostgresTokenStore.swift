#if PostgreSQL
import Glibc
import Synchronization
import System
package import TokenStore

/// A store on PostgreSQL, which other servers may use at the same time.
///
/// The first handles have their own connections to the primary, in pipeline mode; the others use theirs. Rows are sealed before they are
/// sent.
package final class PostgresTokenStore: TokenStore {
    private let postgres: PostgresOptions
    private let options: StoreOptions
    let state: PostgresState
    let finder: PrimaryFinder
    private let connections: PrimaryConnections
    private let agreement: StoreAgreement
    private let upkeep: Upkeep
    private let handle: WaitingHandle
    /// The handles that have connections, and how many other handles use those.
    private let owners = Mutex((handles: [PostgresStoreHandle](), users: 0))

    /// How many handles, each for a loop, have connections.
    ///
    /// One loop with connections makes more requests than a core of the database answers. If all loops had them, some large servers
    /// would use up `max_connections`.
    private static let ownerCount = 2

    /// - Parameters:
    ///   - postgres: Where the database is, and how it is used.
    ///   - options: The settings that all stores have.
    ///   - state: Holds the keys.
    ///   - interval: See `StoreAgreement`.
    init(
        _ postgres: PostgresOptions, _ options: StoreOptions, _ state: PostgresState, lookingEvery interval: Duration
    ) {
        (self.postgres, self.options, self.state) = (postgres, options, state)
        connections = PrimaryConnections(postgres, state)
        agreement = StoreAgreement(options, state, connections, lookingEvery: interval)
        upkeep = Upkeep(connections, state, agreement)
        finder = PrimaryFinder(postgres, state)
        handle = WaitingHandle { [finder] (deliver) throws(StoreError) in
            // One connection is enough for commands, which run one after the other.
            var one = postgres
            one.connections = 1
            // The process of a command has just found the primary, and must wait before it may use it; see Dial.
            one.timeout = max(postgres.timeout, PrimaryConnections.stepTime)
            return try Self.handle(state, one, finder, deliver)
        }
    }

    /// Opens the store.
    ///
    /// If the database cannot be reached, a server's store is opened later, and serves nobody until then.
    func open() throws(StoreOpenError) {
        do {
            try agreement.open(within: options.isServing ? Upkeep.openingTime : .seconds(30))
        } catch {
            guard options.isServing, error.mayRetry else { throw error }
            return upkeep.start(openingAfter: error) { [finder] in finder.start() }
        }
        finder.start()
    }

    package var software: StoreSoftware { PostgresLibrary.software }

    package var summary: String {
        state.hosts.primary?.description ?? "PostgreSQL at \(state.hosts.names), not connected yet"
    }

    package var fault: StoreError? { state.fault }

    package var administrator: any StoreAdministrator {
        PostgresAdministrator(connections: connections, state: state, handle: handle, agreement: agreement)
    }

    /// False: other servers write as well.
    package var seesAllWrites: Bool { false }

    package func report(writesTo observer: any WriteObserver) {
        preconditionFailure("a store that other servers write to cannot report all writes")
    }

    package func makeHandle(
        deliver: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void
    ) throws(StoreError) -> any StoreHandle {
        upkeep.start()
        return try owners.withLock { (owners) throws(StoreError) in
            guard owners.handles.count == Self.ownerCount else {
                let handle = try Self.handle(state, postgres, finder, deliver)
                owners.handles.append(handle)
                return handle
            }
            owners.users += 1
            return ForwardingHandle(to: owners.handles[owners.users % Self.ownerCount], deliver: deliver)
        }
    }

    private static func handle(
        _ state: PostgresState, _ postgres: PostgresOptions, _ finder: PrimaryFinder,
        _ deliver: @escaping WaitingHandle.Deliver
    ) throws(StoreError) -> PostgresStoreHandle {
        try Result { () throws(SystemError) in
            try PostgresStoreHandle(state, postgres, finder, deliver: deliver)
        }
        .mapError { StoreError.unavailable(StoreFault("a connection's descriptors cannot be watched: \($0)")) }.get()
    }

    package func change(_ retention: Retention) {
        state.change(retention)
    }

    package func finishWrites() {
        state.isClosed.store(true, ordering: .releasing)
        // Meanwhile the handles' loops carry out the requests that they have accepted.
        let end = MonotonicTime.now + postgres.timeout
        while state.waitingRequests.load(ordering: .acquiring) > 0, .now < end { usleep(1_000) }
    }

    package func close() {
        finishWrites()
        finder.close()
        connections.close()
        upkeep.stop()
    }

    package var metrics: StoreMetrics { state.metrics }
}
#endif
