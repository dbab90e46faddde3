#if PostgreSQL
internal import Cryptography
internal import Synchronization
internal import System
internal import TokenStore

/// What a server looks at regularly: what servers have agreed on, and, while no client sends requests, whether those that have failed
/// would still fail.
///
/// A server whose requests fail is not ready, so that a load balancer may send it no more of them: without trials it could not
/// learn that a disk has room again. While clients' requests fail, they are trials enough.
///
/// Any thread.
final class RegularChecks: Sendable {
    private let sessions: PrimarySessions
    private let state: PostgresState
    private let agreement: StoreAgreement
    private let interval: Duration
    private let said = OnceEach()
    private let isStopped = Atomic<Bool>(false)
    private let isStarted = Atomic<Bool>(false)
    private let wake = Semaphore()
    private let finished = Semaphore()

    /// The time between two looks at what servers have agreed on, and so until a key seals on all of them.
    static let lookInterval = Duration.seconds(3)
    /// The longest time between two trials.
    private static let pause = Duration.seconds(1)
    private static let limit = Duration.seconds(4)
    /// The length of the value that is tried, in bytes: more than what is left free in the pages of a table.
    private static let size = 64 << 10

    init(
        _ sessions: PrimarySessions, _ state: PostgresState, _ agreement: StoreAgreement,
        lookingEvery interval: Duration = RegularChecks.lookInterval
    ) {
        (self.sessions, self.state) = (sessions, state)
        (self.agreement, self.interval) = (agreement, interval)
    }

    /// Begins, on a thread of its own.
    func start() {
        isStarted.store(true, ordering: .releasing)
        NamedThread.startOrExit("pg-checks") { [self] in
            var nextLook = MonotonicTime.now + Nanoseconds(interval)
            while !isStopped.load(ordering: .acquiring) {
                if nextLook <= .now || state.hasRefusedKey.load(ordering: .relaxed) {
                    look()
                    nextLook = .now + Nanoseconds(interval)
                }
                for areWrites in [true, false] where state.needsTrial(ofWrites: areWrites) { attempt(areWrites) }
                wake.wait(atMost: min(Self.pause, interval))
            }
            finished.signal()
        }
    }

    /// Ends it; waits for that, though not for a database that does not answer.
    func stop() {
        guard isStarted.load(ordering: .acquiring) else { return }
        isStopped.store(true, ordering: .releasing)
        wake.signal()
        finished.wait(atMost: .seconds(2))
    }

    private func look() {
        do throws(StoreError) {
            try agreement.look(sessions)
        } catch {
            // Otherwise it is the database that cannot be reached, of which clients' requests tell.
            guard case .read(let fault) = error, !fault.mayRetry, said.isNew("\(error)") else { return }
            let text = "this server cannot learn which key seals, and goes on with the present one: \(error)"
            state.report(.own(StoreNotice(.warning, text)))
        }
    }

    private func attempt(_ isWrite: Bool) {
        do throws(StoreError) {
            if isWrite { try write() } else { try read() }
            state.noteSuccess(isWrite: isWrite)
        } catch {
            // Clients' requests have told of it.
        }
    }

    private func read() throws(StoreError) {
        try sessions.perform(.reading, within: Self.limit, repeats: false) {
            (session, deadline) throws(PostgresError) in
            try session.run("SELECT value FROM token LIMIT 1", until: deadline)
        }
    }

    /// Stores a token, rolls that back, and commits: nothing is left, but the disk has to have room for it.
    private func write() throws(StoreError) {
        let (key, value): ([UInt8], [UInt8])
        do throws(CryptographyError) {
            // Random, so that nothing can be saved by compressing it.
            (key, value) = (try RandomBytes.published(32), try RandomBytes.published(Self.size))
        } catch {
            throw .write(StoreFault("\(error)"))
        }
        try sessions.perform(within: Self.limit, repeats: false) { (session, deadline) throws(PostgresError) in
            var parameters = Parameters()
            parameters.append(key)
            parameters.append(value)
            try session.transaction(until: deadline) { () throws(PostgresError) in
                try session.run("SAVEPOINT trial", until: deadline)
                try session.run(
                    """
                    INSERT INTO token (key, version, written_at, key_number, value) VALUES ($1::bytea, 0, 0, 0, $2::bytea)
                    ON CONFLICT (key) DO UPDATE SET value = excluded.value
                    """, parameters, until: deadline)
                try session.run("ROLLBACK TO SAVEPOINT trial", until: deadline)
            }
        }
    }
}
#endif
