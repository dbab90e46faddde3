#if PostgreSQL
internal import Synchronization
internal import System
internal import TokenStore

/// Opens a store: agrees with other servers on its keys, and only then lets clients and operators use the database.
///
/// No key ring is made before the database has said that there is none.
struct StoreOpening: Sendable {
    private let agreement: StoreAgreement
    private let limit: Duration
    /// Its own: others may not be used yet.
    private let connections: PrimaryConnections
    private let state: PostgresState
    private let said = OnceEach()

    /// How long a step may take, the search for the primary included: of a command, which fails then, and of a server, which then
    /// begins to listen, and tries again.
    private static let times = (command: Duration.seconds(30), server: Duration.seconds(3))
    /// The pause before another attempt, in milliseconds: for the database, and for an operator who mends what is wrong.
    private static let pauses = (database: Int64(200), operator: Int64(2_000))

    /// - Parameters:
    ///   - waits: Whether it is a server's, which goes on trying.
    ///   - connections: Used by nobody else.
    ///   - state: Is told whether the store is open.
    ///   - agreement: Finds the keys.
    init(waits: Bool, _ connections: PrimaryConnections, _ state: PostgresState, _ agreement: StoreAgreement) {
        limit = waits ? Self.times.server : Self.times.command
        (self.connections, self.state, self.agreement) = (connections, state, agreement)
    }

    /// Opens the store; the caller waits for the database.
    func open() throws(StoreOpenError) {
        let row = try agreement.enter(connections, within: limit)
        state.clock.use { $0 = ExpiryClock(saved: row.lookedAt, at: .now) }
        connections.close()
        state.noteOpened()
    }

    /// Tries again.
    ///
    /// - Returns: The pause before the next attempt; nil if the store is open.
    func attempt() -> Duration? {
        do throws(StoreOpenError) {
            try open()
            return nil
        } catch {
            return pause(after: error)
        }
    }

    /// Tells operators why an attempt has failed; a database that cannot be reached is told of once, for whatever reasons.
    ///
    /// - Returns: The pause before the next one.
    func pause(after error: StoreOpenError) -> Duration {
        state.noteNotOpened(error)
        if !state.isClosed.load(ordering: .acquiring), said.isNew(error.mayRetry ? "" : "\(error)") {
            let (problem, hope) =
                error.mayRetry
                ? ("reached", "goes on by itself as soon as it can")
                : ("used", "checks every few seconds whether that is mended")
            let text = """
                the database cannot be \(problem), and clients are told that tokens can be neither stored nor read; this server \
                \(hope): \(error)
                """
            state.report(.own(StoreNotice(.fault, text)))
        }
        let pause = error.mayRetry ? Self.pauses.database : Self.pauses.operator
        return .milliseconds(Int64.random(in: pause / 2...pause))
    }

    /// Ends an attempt that is under way.
    func close() {
        connections.close()
    }
}

extension PrimaryConnections {
    /// As `perform`, before the store is open.
    func performOpening<Value>(
        within limit: Duration, _ body: (BlockingConnection) throws(PostgresError) -> Value
    ) throws(StoreOpenError) -> Value {
        do throws(StoreError) {
            return try perform(or: StoreError.unavailable, within: limit, body)
        } catch {
            if case .unavailable(let fault) = error { throw .store(fault) }
            throw .store(StoreFault("\(error)"))
        }
    }
}
#endif
