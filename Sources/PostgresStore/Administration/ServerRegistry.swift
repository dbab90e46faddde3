#if PostgreSQL
internal import Glibc
internal import Synchronization
internal import System
internal import TokenStore

/// This process among all that use the database: its row in the table `server`, and which key seals.
///
/// Every few seconds it writes its row, with the keys that it has, and reads those of the others. The newest key that all running
/// servers have seals, so that none of them gets a token to read that it cannot open. In its row a key is marked as long as
/// the process seals with it, or rows are under way that it has sealed with it: such a key cannot be retired.
///
/// Any thread.
final class ServerRegistry: Sendable {
    struct Times: Sendable {
        /// The time between two beats.
        var beat = Duration.seconds(5)
        /// How long another server may go without one.
        var silence = Duration.seconds(RegisteredServer.silence)
        /// After how long the row of a server that has crashed is removed.
        var forgetting = Duration.seconds(600)
        /// How long the statements of a beat may take, and a new primary may be looked for.
        var step = Duration.seconds(4)
        /// How long a row may be under way to the database after it was sealed.
        var underWay: Duration
    }

    let id: [UInt8]
    private let name: String
    private let version: String
    private let startedAt = Int64(time(nil))
    private let sessions: PrimarySessions
    private let state: PostgresState
    /// Nil in the clear.
    let keyRing: SharedKeyRing?
    private let times: Times
    /// Ends the thread's wait when the registry is stopped.
    private let wake = Semaphore()
    private let said = OnceEach()
    private let isStarted = Atomic<Bool>(false)
    private let isStopped = Atomic<Bool>(false)
    private let finished = Semaphore()
    /// One beat at a time.
    private let turn = Semaphore(value: 1)
    private let memory: Mutex<Memory>

    private struct Memory {
        var watch: ServerWatch
        /// The other servers that run.
        var others: [RegisteredServer] = []
        /// The keys that the store names.
        var named: Set<Int> = []
        /// Keys that have sealed, and until when rows may be under way that they have sealed; nil for the one that seals.
        var sealing: [Int: MonotonicTime?] = [:]
        var nextBeat = MonotonicTime.now
    }

    /// - Parameters:
    ///   - id: 16 random bytes.
    ///   - options: The names under which operators see this process.
    ///   - sessions: Used one at a time.
    ///   - state: Has the keys, from `enter` on.
    ///   - keyRing: Nil in the clear.
    ///   - times: Shorter ones for tests.
    init(
        id: [UInt8], _ options: PostgresOptions, _ sessions: PrimarySessions, _ state: PostgresState,
        keyRing: SharedKeyRing?, times: Times? = nil
    ) {
        let times = times ?? Times(underWay: options.timeout + .seconds(5))
        (self.id, name, version) = (id, options.serverName, options.softwareVersion)
        (self.sessions, self.state, self.keyRing) = (sessions, state, keyRing)
        self.times = times
        memory = Mutex(Memory(watch: ServerWatch(silence: times.silence)))
    }

    // MARK: - The thread

    /// Registers this process when the store's keys are known; before `start`.
    func enter() throws(StoreError) {
        if let ring = keyRing?.ring { memory.withLock { $0.sealing[ring.active.number] = .some(nil) } }
        try beat()
    }

    /// Begins, on a thread of its own.
    func start() {
        isStarted.store(true, ordering: .releasing)
        NamedThread.startOrExit("pg-registry") { [self] in
            while !isStopped.load(ordering: .acquiring) {
                let pause = run()
                if !isStopped.load(ordering: .acquiring) { wake.wait(atMost: pause) }
            }
            leave()
            finished.signal()
        }
    }

    /// Ends it; removes the row, and waits for that, though not for a database that does not answer.
    func stop() {
        guard isStarted.load(ordering: .acquiring) else { return }
        isStopped.store(true, ordering: .releasing)
        wake.signal()
        finished.wait(atMost: .seconds(3))
    }

    /// Does what is due; returns how long to wait until the next round.
    private func run() -> Duration {
        do throws(StoreError) {
            if memory.withLock(\.nextBeat) <= .now { try beat() }
        } catch {
            // Otherwise it is the database that cannot be reached, of which clients' requests tell.
            if !error.mayRetry {
                sayOnce(
                    .warning,
                    "this server cannot register in the database, and so not take part in changes of keys: \(error)")
            }
            // What an operator has to mend takes its time.
            return .milliseconds(Int64.random(in: error.mayRetry ? 100...300 : 500...1_500))
        }
        let next = memory.withLock(\.nextBeat)
        return .nanoseconds(Int64(clamping: (next - .now).count))
    }

    private func sayOnce(_ severity: StoreEvent.Severity, _ text: String) {
        if said.isNew(text) { state.report(.own(StoreNotice(severity, text))) }
    }

    // MARK: - A beat

    /// What a beat has read.
    private struct Reading: Sendable {
        var servers: [RegisteredServer]
        var keyNumbers: Set<Int>
        /// Whether the key that seals may do so.
        var isAdmitted: Bool
        var store: StoreRow?
    }

    /// Registers this process, takes notice of the others, and has a new key seal if all have it.
    func beat() throws(StoreError) {
        turn.wait()
        defer { turn.signal() }
        keyRing?.refresh(named: memory.withLock(\.named))
        let began = MonotonicTime.now
        let (row, active) = (row(began), keyRing?.ring.active.number)
        // Asked again each time, as settings change while a connection is open.
        let reading = try sessions.perform(within: times.step, asks: true, repeats: true) {
            (session, deadline) throws(PostgresError) in
            try row.write(to: session, until: deadline)
            // After the row that says that this process seals with it: until then it can be retired.
            let isAdmitted = try active.map { (number) throws(PostgresError) in
                try SealingKeyRows(session, until: deadline).admit(number)
            }
            return Reading(
                servers: try RegisteredServer.all(from: session, until: deadline),
                keyNumbers: try SealingKeyRows(session, until: deadline).all(), isAdmitted: isAdmitted ?? true,
                store: try StoreRow.read(from: session, until: deadline))
        }
        let forgotten = memory.withLock { memory in
            let now = MonotonicTime.now
            memory.watch.look(at: reading.servers, now)
            let others = reading.servers.filter { $0.id != id }
            memory.others = others.filter { memory.watch.isRunning($0, now) }
            memory.named = reading.keyNumbers
            memory.nextBeat = began + Nanoseconds(times.beat)
            return others.filter {
                (memory.watch.unchanged($0, now)?.count ?? 0) >= Nanoseconds(times.forgetting).count
            }
        }
        judge(reading)
        if keyRing != nil { try activateKey() }
        if !forgotten.isEmpty { try forget(forgotten) }
    }

    /// Writes this process's row before its keys are in use.
    ///
    /// - Parameter ring: Those keys; nil in the clear.
    func announce(
        _ ring: KeyRing?, on session: BlockingSession, until deadline: MonotonicTime
    ) throws(PostgresError) {
        var row = bareRow
        row.keyNumbers = ring?.keys.map(\.number) ?? []
        try row.write(to: session, until: deadline)
    }

    /// This process's row, without keys.
    private var bareRow: RegisteredServer {
        RegisteredServer(
            id: id, name: name, version: version, keyNumbers: [],
            startedAt: startedAt, seenAt: Int64(time(nil)))
    }

    private func row(_ now: MonotonicTime) -> RegisteredServer {
        var row = bareRow
        guard let ring = keyRing?.ring else { return row }
        row.keyNumbers = ring.keys.map(\.number)
        row.sealingNumbers = memory.withLock { memory in
            memory.sealing = memory.sealing.filter { _, end in end.map { now < $0 } ?? true }
            return memory.sealing.keys.sorted()
        }
        return row
    }

    /// Tells operators what is wrong in the database.
    private func judge(_ reading: Reading) {
        guard let store = reading.store else {
            return sayOnce(.fault, "the tables of token-cache are gone from the database; restore them from a backup")
        }
        if let fault = SchemaCheck.fault(of: store) { sayOnce(.fault, "\(fault)") }
        guard let ring = keyRing?.ring else {
            if store.isSealed { sayOnce(.fault, Self.changedRing) }
            return
        }
        if store.keyRing != (try? ring.identity()) { sayOnce(.fault, Self.changedRing) }
        let missing = reading.keyNumbers.filter { ring.numberedKey($0) == nil }
        state.metrics.missingKeys.store(missing.count, ordering: .relaxed)
        for number in missing { sayOnce(.warning, text(ofMissing: number)) }
        let retired = reading.isAdmitted ? 0 : ring.active.number
        state.sealing.retiring.store(retired, ordering: .releasing)
        if retired != 0 { sayOnce(.fault, "\(SealingError.retired(keyNumber: retired))") }
    }

    private static let changedRing = """
        the database is sealed with another key ring now, or not at all: somebody has changed or replaced it. Stop the servers, and \
        restore the database or the key ring
        """

    private func text(ofMissing number: Int) -> String {
        """
        the key ring \(keyRing?.file.path ?? "") lacks key \(number), with which tokens of the store are sealed; they cannot be read \
        here (50002), and the others are served. Copy the key ring from a server that has it; this one takes it over without \
        a restart
        """
    }

    private func forget(_ servers: [RegisteredServer]) throws(StoreError) {
        try sessions.perform(within: times.step, repeats: true) { (session, deadline) throws(PostgresError) in
            for server in servers {
                try RegisteredServer.remove(server.id, ifSeenAt: server.seenAt, from: session, until: deadline)
            }
        }
    }

    // MARK: - Keys

    /// The running servers that lack a key, by their names.
    func servers(lacking keyNumber: Int) -> [String] {
        memory.withLock(\.others).filter { !$0.keyNumbers.contains(keyNumber) }.map(\.name)
    }

    /// The running servers that seal with a key, or may have rows under way that they have sealed with it.
    func servers(sealingWith keyNumber: Int) -> [String] {
        memory.withLock { memory in
            memory.others.filter { $0.sealingNumbers.contains(keyNumber) }.map(\.name)
                + (memory.sealing.keys.contains(keyNumber) ? [name] : [])
        }
    }

    /// Has the newest key seal that all running servers have.
    private func activateKey() throws(StoreError) {
        guard let keyRing else { return }
        let (ring, others) = (keyRing.ring, memory.withLock(\.others))
        let later = ring.keys.reversed().prefix { $0.number > ring.active.number }
        for key in later {
            let lacking = others.filter { !$0.keyNumbers.contains(key.number) }
            guard lacking.isEmpty else {
                let names = lacking.map(\.name).joined(separator: ", ")
                sayOnce(
                    .note, "key \(key.number) seals as soon as all running servers have it; these have not: \(names)")
                continue
            }
            let isAdmitted = try sessions.perform(within: times.step, repeats: true) {
                (session, deadline) throws(PostgresError) in
                try SealingKeyRows(session, until: deadline).admit(key.number)
            }
            guard isAdmitted else { continue }
            let former = ring.active.number
            keyRing.activate(key.number)
            memory.withLock { memory in
                memory.sealing[key.number] = .some(nil)
                memory.sealing[former] = .now + Nanoseconds(times.underWay)
            }
            return sayOnce(.note, "key \(key.number) seals from now on, as all running servers have it")
        }
    }

    /// Removes the row.
    private func leave() {
        try? sessions.perform(within: .seconds(1), repeats: true) { (session, deadline) throws(PostgresError) in
            try RegisteredServer.remove(id, from: session, until: deadline)
        }
    }
}
#endif
