#if PostgreSQL
import Glibc
import Synchronization
import System
package import TokenStore

/// A store on PostgreSQL, which other servers may use at the same time.
///
/// Each handle has its own connections to the primary, in pipeline mode. Rows are sealed before they are sent.
package final class PostgresTokenStore: TokenStore {
    private let postgres: PostgresOptions
    private let options: StoreOptions
    let state: PostgresState
    let finder: PrimaryFinder
    private let connections: PrimaryConnections
    private let longWork: PrimaryConnections
    private let agreement: StoreAgreement
    private let upkeep: Upkeep
    private let handle: WaitingHandle

    /// - Parameters:
    ///   - postgres: Where the database is, and how it is used.
    ///   - options: The settings that all stores have.
    ///   - state: Holds the keys.
    ///   - times: Those of the background work.
    init(
        _ postgres: PostgresOptions, _ options: StoreOptions, _ state: PostgresState,
        _ times: Upkeep.Times
    ) {
        (self.postgres, self.options, self.state) = (postgres, options, state)
        connections = PrimaryConnections(postgres, state)
        longWork = PrimaryConnections(postgres, state, atOnce: 1)
        agreement = StoreAgreement(options, state, connections, longWork)
        upkeep = Upkeep(connections, state, agreement, times)
        finder = PrimaryFinder(postgres.hosts, state) { index, trial in
            Dial(options: postgres, host: postgres.hosts[index], trial: trial, proofs: state.proofs) { facts, rules in
                state.hosts.note(index, facts)
                if facts.isWritable { state.warn(facts, rules) }
            }
        }
        handle = WaitingHandle { [finder] (deliver) throws(StoreError) in
            // One connection is enough for commands, which run one after the other.
            var one = postgres
            one.connections = 1
            // The process of a command has just found the primary, and must wait before it may use it; see Dial.
            one.timeout = max(postgres.timeout, PostgresAdministrator.stepTime)
            return try Self.handle(state, one, finder, deliver)
        }
    }

    /// Opens the store.
    ///
    /// If the database cannot be reached, a server's store is opened later, and serves nobody until then.
    func open() throws(StoreOpenError) {
        do throws(StoreOpenError) {
            try agreement.open(within: options.isServing ? Upkeep.openingTime : .seconds(30))
        } catch {
            guard options.isServing, error.mayRetry else { throw error }
            return upkeep.start(openingAfter: error) { [finder] in finder.start() }
        }
        finder.start()
    }

    package var software: StoreSoftware { StoreSoftware(name: "libpq", version: PostgresLibrary.version) }

    package var summary: String {
        let sealing = options.isSealed ? "sealed" : "in the clear"
        guard let primary = state.hosts.primary else {
            return "PostgreSQL at \(state.hosts.names), not connected yet, \(sealing)"
        }
        return "\(primary.description), \(sealing)"
    }

    package var fault: StoreError? { state.fault }

    package var administrator: any StoreAdministrator {
        PostgresAdministrator(
            connections, longWork, state, handle: handle, options.isSealed ? agreement : nil)
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
        return try Self.handle(state, postgres, finder, deliver)
    }

    private static func handle(
        _ state: PostgresState, _ postgres: PostgresOptions, _ finder: PrimaryFinder,
        _ deliver: @escaping WaitingHandle.Deliver
    ) throws(StoreError) -> any StoreHandle {
        do throws(SystemError) {
            return try PostgresStoreHandle(state, postgres, finder, deliver: deliver)
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
        // Meanwhile the handles' loops carry out the requests that they have accepted.
        let end = MonotonicTime.now + Nanoseconds(postgres.timeout)
        while state.waitingRequests.load(ordering: .acquiring) > 0, .now < end { usleep(1_000) }
    }

    package func close() {
        finishWrites()
        finder.close()
        connections.close()
        longWork.close()
        upkeep.stop()
    }

    package var metrics: StoreMetrics { state.metrics }
}
#endif
