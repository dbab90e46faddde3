#if PostgreSQL
internal import Synchronization
internal import System
internal import TokenStore

/// What a server does beside requests, on a thread of its own.
///
/// It opens the store if the database could not be reached at first, looks at what servers have agreed on, and deletes what has
/// expired. While no client sends requests, it also tries whether those that have failed would still fail.
///
/// A server whose requests fail is not ready, so that a load balancer may send it no more of them: without trials it could not
/// learn that a disk has room again. While clients' requests fail, they are trials enough.
///
/// Any thread.
final class Upkeep: Sendable {
    private let connections: PrimaryConnections
    private let state: PostgresState
    private let agreement: StoreAgreement
    private let times: Times
    private let isStopped = Atomic<Bool>(false)
    private let isStarted = Atomic<Bool>(false)
    private let alarm = Semaphore()
    private let finished = Semaphore()

    struct Times: Sendable {
        /// Between two looks at what servers have agreed on, and so until a key seals on all of them.
        var look = Duration.seconds(3)
        /// The longest time between two deletions, if something expires.
        var deletion = Duration.seconds(60)
    }

    /// How long a step of opening a server's store may take: it then begins to listen, and tries again.
    static let openingTime = Duration.seconds(3)
    /// The longest pause before another attempt, in milliseconds: for the database, and for an operator who mends what is wrong.
    private static let openingPauses = (database: Int64(200), operator: Int64(2_000))
    /// The longest time between two trials.
    private static let pause = Duration.seconds(1)
    private static let limit = Duration.seconds(4)

    /// - Parameters:
    ///   - connections: Used one at a time.
    ///   - state: Has the retention; gets the counts.
    ///   - agreement: Looks which key seals.
    ///   - times: Shorter ones for tests.
    init(
        _ connections: PrimaryConnections, _ state: PostgresState, _ agreement: StoreAgreement, _ times: Times = Times()
    ) {
        (self.connections, self.state, self.agreement, self.times) = (connections, state, agreement, times)
    }

    /// Begins, unless it has already.
    ///
    /// - Parameters:
    ///   - error: Why the store could not be opened; then it is first opened, as soon as that succeeds. Nil if it is open.
    ///   - whenOpened: Called then.
    func start(openingAfter error: StoreOpenError? = nil, whenOpened: @escaping @Sendable () -> Void = {}) {
        guard !isStarted.exchange(true, ordering: .acquiringAndReleasing) else { return }
        let firstPause = error.map(pause)
        NamedThread.startOrExit("pg-upkeep") { [self] in
            var pause = firstPause
            while let time = pause, !isStopped.load(ordering: .acquiring) {
                alarm.wait(atMost: time)
                do throws(StoreOpenError) {
                    try agreement.open(within: Self.openingTime)
                    whenOpened()
                    pause = nil
                } catch {
                    pause = self.pause(after: error)
                }
            }
            var sweeper = Sweeper(connections, state, interval: times.deletion)
            var nextLook = MonotonicTime.now + Nanoseconds(times.look)
            while !isStopped.load(ordering: .acquiring) {
                if nextLook <= .now || state.hasRefusedKey.load(ordering: .relaxed) {
                    look()
                    nextLook = .now + Nanoseconds(times.look)
                }
                for areWrites in [true, false] where state.needsTrial(ofWrites: areWrites) { attempt(areWrites) }
                sweeper.proceed()
                alarm.wait(atMost: min(Self.pause, times.look, sweeper.pause))
            }
            finished.signal()
        }
    }

    /// Tells operators why the store could not be opened; a database that cannot be reached is told of once, for whatever reasons.
    ///
    /// - Returns: The pause before the next attempt.
    private func pause(after error: StoreOpenError) -> Duration {
        state.noteNotOpened(error)
        let (problem, hope) =
            error.mayRetry
            ? ("reached", "goes on by itself as soon as it can")
            : ("used", "checks every few seconds whether that is mended")
        let text = """
            the database cannot be \(problem), and clients are told that tokens can be neither stored nor read; this server \
            \(hope): \(error)
            """
        if !state.isClosed.load(ordering: .acquiring) {
            state.sayOnce(.fault, text, as: error.mayRetry ? "not reached" : text)
        }
        let pause = error.mayRetry ? Self.openingPauses.database : Self.openingPauses.operator
        return .milliseconds(Int64.random(in: pause / 2...pause))
    }

    /// Has it look at once, as another retention is in force.
    func wake() {
        alarm.signal()
    }

    /// Ends it; waits for that, though not for a database that does not answer.
    func stop() {
        isStopped.store(true, ordering: .releasing)
        alarm.signal()
        if isStarted.load(ordering: .acquiring) { finished.wait(atMost: .seconds(4)) }
    }

    private func look() {
        do throws(StoreError) {
            try agreement.look()
        } catch {
            // Otherwise it is the database that cannot be reached, of which clients' requests tell.
            guard case .read(let fault) = error, !fault.mayRetry else { return }
            let text = "this server cannot learn which key seals, and goes on with the present one: \(error)"
            state.sayOnce(.warning, text)
        }
    }

    private func attempt(_ isWrite: Bool) {
        do throws(StoreError) {
            try connections.perform(within: Self.limit) { (connection) throws(PostgresError) in
                if isWrite { try Self.write(connection) } else { try connection.run("SELECT value FROM token LIMIT 1") }
            }
            state.noteSuccess(isWrite: isWrite)
        } catch {
            // Clients' requests have told of it.
        }
    }

    /// Stores a token, rolls that back, and commits: nothing is left, but the disk has to have room for it.
    private static func write(_ connection: BlockingConnection) throws(PostgresError) {
        try connection.transaction { () throws(PostgresError) in
            try connection.run("SAVEPOINT trial")
            // More than what is left free in the pages of a table; random, so that nothing can be saved by compressing it.
            try connection.run(
                """
                INSERT INTO token (key, version, written_at, key_number, value)
                SELECT sha256(random()::text::bytea), 0, 0, 0, string_agg(sha256(random()::text::bytea), '')
                FROM generate_series(1, 2048)
                """)
            _ = try connection.run("ROLLBACK TO SAVEPOINT trial")
        }
    }
}
#endif
