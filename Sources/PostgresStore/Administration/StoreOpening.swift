#if PostgreSQL
internal import Synchronization
internal import System
internal import TokenStore

/// Opens a store: agrees with other servers on its keys, and only then lets clients and operators use the database.
///
/// A server whose database cannot be reached goes on with that on a thread of its own until it succeeds, and serves nobody
/// meanwhile. No key ring is made before the database has said that there is none.
///
/// Any thread.
final class StoreOpening: Sendable {
    private let agreement: StoreAgreement
    private let limit: Duration
    /// Its own: others may not be used yet.
    private let sessions: PrimarySessions
    private let state: PostgresState
    private let said = OnceEach()
    private let isStopped = Atomic<Bool>(false)
    private let isStarted = Atomic<Bool>(false)
    private let finished = Semaphore()

    /// How long a step may take, the search for the primary included: of a command, which fails then, and of a server, which then
    /// begins to listen, and tries again.
    private static let times = (command: Duration.seconds(30), server: Duration.seconds(3))
    /// The pause before another attempt, in milliseconds: for the database, and for an operator who mends what is wrong.
    private static let pauses = (database: Int64(200), operator: Int64(2_000))
    /// The least time between two lines about a database that cannot be reached.
    private static let quiet = Nanoseconds(.seconds(10))

    /// - Parameters:
    ///   - waits: Whether it is a server's, which goes on trying.
    ///   - target: Where the hosts are.
    ///   - durability: Where a write must be on disk before it is acknowledged.
    ///   - state: Is told whether the store is open.
    ///   - agreement: Finds the keys.
    init(
        waits: Bool, _ target: ConnectionTarget, _ durability: StoreDurability, _ state: PostgresState,
        _ agreement: StoreAgreement
    ) {
        sessions = PrimarySessions(target, durability)
        limit = waits ? Self.times.server : Self.times.command
        (self.state, self.agreement) = (state, agreement)
    }

    /// Opens the store; the caller waits for the database.
    func open() throws(StoreOpenError) {
        let row = try agreement.enter(sessions, within: limit)
        state.clock.use { $0 = ExpiryClock(saved: row.lookedAt, at: .now) }
        sessions.close()
        state.noteOpened()
    }

    /// Goes on trying on a thread.
    ///
    /// - Parameters:
    ///   - error: Of the first attempt.
    ///   - begin: Called when the store is open.
    func openLater(after error: StoreOpenError, then begin: @escaping @Sendable () -> Void) {
        isStarted.store(true, ordering: .releasing)
        var lastLine = MonotonicTime.now
        tell(error, isFirst: true, &lastLine)
        NamedThread.startOrExit("pg-opening") { [self, lastLine] in
            var (error, lastLine) = (error, lastLine)
            while !isStopped.load(ordering: .acquiring) {
                let pause = error.mayRetry ? Self.pauses.database : Self.pauses.operator
                wake.wait(atMost: .milliseconds(Int64.random(in: pause / 2...pause)))
                guard !isStopped.load(ordering: .acquiring) else { break }
                do throws(StoreOpenError) {
                    try open()
                    begin()
                    break
                } catch let another {
                    error = another
                    tell(error, isFirst: false, &lastLine)
                }
            }
            finished.signal()
        }
    }

    private let wake = Semaphore()

    /// Gives up; waits for that, though not for a database that does not answer.
    func stop() {
        isStopped.store(true, ordering: .releasing)
        sessions.close()
        wake.signal()
        if isStarted.load(ordering: .acquiring) { finished.wait(atMost: .seconds(4)) }
    }

    private func tell(_ error: StoreOpenError, isFirst: Bool, _ lastLine: inout MonotonicTime) {
        state.noteNotOpened(error)
        guard !isStopped.load(ordering: .acquiring) else { return }
        // Reasons of a network change often, those that an operator has to mend do not.
        let isQuiet = error.mayRetry && !isFirst && (MonotonicTime.now - lastLine).count < Self.quiet.count
        guard !isQuiet, said.isNew("\(error)") else { return }
        lastLine = .now
        let text =
            if error.mayRetry {
                """
                the database cannot be reached, and clients are told that tokens can be neither stored nor read; this server \
                goes on by itself as soon as it can: \(error)
                """
            } else {
                """
                the database cannot be used, and clients are told that tokens can be neither stored nor read; this server \
                looks every few seconds whether that is mended: \(error)
                """
            }
        state.report(.own(StoreNotice(.fault, text)))
    }
}

extension PrimarySessions {
    /// As `perform`, of statements that may be repeated, before the store is open.
    func performOpening<Value>(
        _ purpose: Purpose, within limit: Duration,
        _ body: (BlockingSession, MonotonicTime) throws(PostgresError) -> Value
    ) throws(StoreOpenError) -> Value {
        do throws(StoreError) {
            return try perform(purpose, within: limit, repeats: true, body)
        } catch {
            switch error {
            case .read(let fault), .write(let fault), .unavailable(let fault): throw .store(fault)
            default: throw .store(StoreFault("\(error)"))
            }
        }
    }
}
#endif
