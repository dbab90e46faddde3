#if PostgreSQL
internal import Metrics
internal import Synchronization
internal import System
package import TokenStore

/// A store on PostgreSQL, which other servers may use at the same time.
///
/// Each handle has connections of its own to the primary, in pipeline mode. What is written is sealed before it is sent.
package final class PostgresTokenStore: TokenStore {
    private let options: PostgresOptions
    private let state: PostgresState
    private let finder: PrimaryFinder
    private let sessions: PrimarySessions
    private let sweeper: Sweeper
    /// A command makes no handle, and leaves to servers what they do for all.
    private let isServing = Mutex(false)

    /// - Parameter id: Random bytes that tell this process from others.
    init(_ options: PostgresOptions, _ target: ConnectionTarget, _ state: PostgresState, id: [UInt8]) {
        (self.options, self.state) = (options, state)
        let warnings = OnceEach()
        let warn: @Sendable (String) -> Void = { text in
            if warnings.isNew(text) { state.report(.own(StoreNotice(.warning, text))) }
        }
        finder = PrimaryFinder(target, state) { host, proves in
            Dial(
                target: target, host: host, timeout: options.timeout, durability: options.durability, proves: proves,
                warn: warn)
        }
        finder.start()
        sessions = PrimarySessions(target, options.durability)
        sweeper = Sweeper(sessions, state, holder: id)
    }

    package var software: StoreSoftware { StoreSoftware(name: "libpq", version: PostgresLibrary.version) }

    package var summary: String { "PostgreSQL" }

    package var fault: StoreError? { state.fault }

    package var metrics: StoreMetrics {
        let keys = state.sealing.ring?.keys ?? []
        return StoreMetrics(
            writes: state.metrics.writes.load(ordering: .relaxed),
            queuedBytes: state.waitingBytes.load(ordering: .relaxed), commitTime: state.metrics.roundTrip,
            groupSize: state.metrics.groupSize, expired: state.metrics.expired.load(ordering: .relaxed),
            isExpiryHeld: state.metrics.isExpiryHeld.load(ordering: .relaxed),
            keySeals: keys.map { ($0.number, state.sealing.seals.count(of: $0.number).value) },
            unreadableReads: state.metrics.unreadableReads.load(ordering: .relaxed))
    }

    package var administrator: any StoreAdministrator { PostgresAdministrator(sessions, state, keyRing: nil) }

    package var preloader: (any StorePreloader)? { nil }

    /// False: other servers write as well.
    package var seesAllWrites: Bool { false }

    package func report(writesTo observer: any WriteObserver) {
        preconditionFailure("nobody learns of the writes of other servers")
    }

    package func makeHandle(
        deliver: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void
    ) throws(StoreError) -> any StoreHandle {
        let isFirst = isServing.withLock { isServing in
            defer { isServing = true }
            return !isServing
        }
        if isFirst { sweeper.start() }
        do throws(SystemError) {
            return try PostgresStoreHandle(state, options, finder, deliver: deliver)
        } catch {
            throw .unavailable(StoreFault("a connection's descriptors cannot be watched: \(error)"))
        }
    }

    package func change(_ retention: Retention) async throws(StoreError) {
        state.change(retention)
        sweeper.wake()
    }

    package func close() {
        state.isClosed.store(true, ordering: .releasing)
        finder.close()
        if isServing.withLock(\.self) { sweeper.stop() }
        sessions.close()
    }
}
#endif
