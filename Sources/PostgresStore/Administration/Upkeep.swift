#if PostgreSQL
import Synchronization
import System
import TokenStore

/// The background work of a server, on a thread of its own.
///
/// It opens the store if the database could not be reached at first, looks at what servers have agreed on, and takes steps of the
/// walk. After requests have failed and no client sends further ones, it tries whether they would still fail: a server whose
/// requests fail is not ready, so a load balancer may send it none, and without trials it could not learn that, for example, a disk
/// has room again.
///
/// Any thread.
final class Upkeep: Sendable {
    private let connections: PrimaryConnections
    private let state: PostgresState
    private let agreement: StoreAgreement
    private let isStopped = Atomic<Bool>(false)
    private let isStarted = Atomic<Bool>(false)
    private let alarm = Semaphore()
    private let finished = Semaphore()

    /// How long a step of opening the store may take; after that the server begins to listen, and tries again.
    static let openingTime = Duration.seconds(3)
    /// The longest pauses before another attempt to open the store, in milliseconds: if the database cannot be reached, and if an
    /// operator has to mend something.
    private static let openingPauses = (database: Int64(200), operator: Int64(2_000))
    /// The longest time between two trials.
    private static let pause = Duration.seconds(1)
    /// How long a step of the walk may take, and when the next one is tried after one that failed.
    private static let stepTime = Duration.seconds(10)
    private static let pauseAfterFailure = Duration.seconds(30)
    /// How long a trial may take.
    private static let limit = Duration.seconds(4)

    /// - Parameters:
    ///   - connections: Used one at a time.
    ///   - state: Has the retention; gets what the walk finds.
    ///   - agreement: Opens the store, and looks which key seals.
    init(_ connections: PrimaryConnections, _ state: PostgresState, _ agreement: StoreAgreement) {
        (self.connections, self.state, self.agreement) = (connections, state, agreement)
    }

    /// Starts the thread, unless it was started before.
    ///
    /// - Parameters:
    ///   - error: Why the store could not be opened: the thread then tries again until it is. Nil if the store is open.
    ///   - whenOpened: Called when the thread has opened the store.
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
            var nextStep = MonotonicTime.now
            var nextLook = MonotonicTime.now + agreement.interval
            while !isStopped.load(ordering: .acquiring) {
                if nextLook <= .now || state.hasRefusedKey.load(ordering: .relaxed) {
                    look()
                    nextLook = .now + agreement.interval
                }
                for areWrites in [true, false] where state.needsTrial(ofWrites: areWrites) { attempt(areWrites) }
                if nextStep <= .now { nextStep = .now + walk() }
                alarm.wait(atMost: min(Self.pause, agreement.interval, .nanoseconds((nextStep - .now).count)))
            }
            finished.signal()
        }
    }

    /// Tells operators why the store could not be opened.
    ///
    /// That the database cannot be reached is reported once, whatever the reasons.
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

    /// Ends the thread, and waits for that, but not long for a database that does not answer.
    func stop() {
        isStopped.store(true, ordering: .releasing)
        alarm.signal()
        if isStarted.load(ordering: .acquiring) { finished.wait(atMost: .seconds(4)) }
    }

    private func look() {
        do {
            try agreement.look()
        } catch {
            // The agreement has reported by itself why it refuses to go on.
            if case .refused = error { return }
            // Clients' requests report that the database cannot be reached, unless theirs are the last connections that it allows.
            let isFull = "\(error)".contains("SQLSTATE \(SQLState.tooManyConnections)")
            guard !error.mayRetry || isFull, !state.isClosed.load(ordering: .acquiring) else { return }
            let text = "this server cannot learn which key seals, and goes on with the present one: \(error)"
            state.sayOnce(.warning, text, as: isFull ? "no connection" : nil)
        }
    }

    /// Takes a step of the walk, if one is due; returns the pause before the next look.
    private func walk() -> Duration {
        do {
            return try connections.perform(within: Self.stepTime) { (connection) throws(PostgresError) in
                try Walk(state: state).step(on: connection).pause
            }
        } catch {
            // If the database cannot be reached, clients' requests report that.
            if !error.mayRetry, !state.isClosed.load(ordering: .acquiring) {
                let text = "expired tokens and sessions are hidden, but rows cannot be looked after for now: \(error)"
                state.sayOnce(.warning, text)
            }
            return Self.pauseAfterFailure
        }
    }

    private func attempt(_ isWrite: Bool) {
        let success: Void? = try? connections.perform(within: Self.limit) { (connection) throws(PostgresError) in
            if isWrite { try Self.write(connection) } else { try connection.run("SELECT value FROM token LIMIT 1") }
        }
        // If it fails, clients' requests have already reported why.
        if success != nil { state.noteSuccess(isWrite: isWrite) }
    }

    /// Stores a token, rolls that back, and commits: this leaves nothing behind, but fails if the disk has no room.
    private static func write(_ connection: BlockingConnection) throws(PostgresError) {
        try connection.transaction { () throws(PostgresError) in
            try connection.run("SAVEPOINT trial")
            // Larger than the free space in the pages of the table, and random, so that it cannot be compressed.
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
