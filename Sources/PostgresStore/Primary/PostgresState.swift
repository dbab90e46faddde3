#if PostgreSQL
import Synchronization
import System
import TokenStore

/// What the handles and the administrator of a store share.
///
/// Any thread.
final class PostgresState: Sendable {
    let sealing: Sealing
    let versions: VersionClock
    let counts: Mutex<PostgresCounts>
    let clock = StoreClock()
    let hosts: KnownHosts
    let proofs = Proofs()
    private let said = OnceEach()
    /// Reports an event to operators.
    let report: @Sendable (StoreEvent) -> Void
    let inspector: (any TokenInspector)?
    private let currentRetention: Mutex<Retention>
    /// How many requests of all handles wait for the database, and the bytes that they take.
    let waitingRequests = Atomic<Int>(0)
    let waitingBytes = Atomic<Int>(0)
    /// How many bytes may wait.
    let queueLimit: Int
    let isClosed = Atomic<Bool>(false)
    /// Whether the database has refused a row whose key was retired, so that this server must look which key seals.
    let hasRefusedKey = Atomic<Bool>(false)

    init(
        sealing: Sealing, versions: VersionClock, _ postgres: PostgresOptions, _ options: StoreOptions
    ) {
        self.sealing = sealing
        self.versions = versions
        counts = Mutex(PostgresCounts(postgres))
        let hosts = postgres.hosts.map(\.description)
        self.hosts = KnownHosts(hosts)
        (report, inspector) = (options.report, options.inspector)
        queueLimit = options.queueLimit
        currentRetention = Mutex(options.retention)
        health = Mutex(StoreHealth(places: hosts.joined(separator: ", "), at: .now))
    }

    func say(_ severity: StoreEvent.Severity, _ text: String) {
        report(.own(severity, text))
    }

    /// Tells operators, once, of a fault that is found again and again.
    ///
    /// - Parameter name: Identifies the fault, if its text differs each time.
    func sayOnce(_ severity: StoreEvent.Severity, _ text: String, as name: String? = nil) {
        if said.isNew(name ?? text) { say(severity, text) }
    }

    // MARK: - Opening

    /// Whether the tables and the keys were found right.
    ///
    /// Until then, no request of a client or an operator reaches the database.
    private let isOpen = Atomic<Bool>(false)
    /// Why the store was not opened at the last attempt.
    private let openFault = Mutex(StoreFault("the database has not been reached yet", mayRetry: true))

    func noteNotOpened(_ error: StoreOpenError) {
        openFault.withLock { if case .store(let fault) = error { $0 = fault } else { $0 = StoreFault("\(error)") } }
    }

    /// From now on the keys of the store are in `sealing`.
    func noteOpened() {
        isOpen.store(true, ordering: .releasing)
    }

    /// Why nothing can be done for clients; nil if it can.
    var refusal: StoreError? {
        if isClosed.load(ordering: .acquiring) { return .closed }
        return refusalOfOperators
    }

    /// Why nothing can be done for operators; nil if it can.
    var refusalOfOperators: StoreError? {
        isOpen.load(ordering: .acquiring) ? nil : .unavailable(openFault.withLock(\.self))
    }

    // MARK: - Health

    private let health: Mutex<StoreHealth>
    /// Whether `health` waits for a success.
    ///
    /// Each answer reads this, and so needs no lock.
    private let isTroubled = Atomic<Bool>(true)

    /// Changes the health, and reports the events that follow.
    func note(_ change: (inout StoreHealth, MonotonicTime) -> [StoreEvent]) {
        let events = health.withLock { health in
            defer { isTroubled.store(health.isTroubled, ordering: .relaxed) }
            return change(&health, .now)
        }
        for event in events { report(event) }
    }

    /// Why requests fail; nil if they do not, or have only just begun to.
    var fault: StoreError? {
        refusalOfOperators ?? sealing.refusal.map { .sealing($0) } ?? health.withLock { $0.fault(at: .now) }
    }

    /// How many connections are open, by the names of their hosts.
    var connections: [String: Int] { health.withLock(\.connections) }

    /// Whether only a trial can show that requests no longer fail.
    func needsTrial(ofWrites areWrites: Bool) -> Bool {
        isTroubled.load(ordering: .relaxed) && health.withLock { $0.needsTrial(ofWrites: areWrites, at: .now) }
    }

    /// Why no primary can be found; nil if there is one, or if none is being looked for.
    var missingPrimary: String? { health.withLock(\.reasons) }

    /// Another server has become the primary; connections to the former one may still be open.
    ///
    /// - Parameters:
    ///   - ready: The first connection to the new primary.
    ///   - former: The former primary.
    ///   - time: How long ago the search began.
    func noteTakeover(by ready: ReadyConnection, from former: ServerIdentity, after time: Nanoseconds) {
        let now = clock.unixTime
        count {
            $0.remote.failovers += 1
            $0.remote.lastFailover = now
        }
        let text = """
            \(ready.facts.description) is the primary now in the place of \(former.address) (timeline \(former.timeline)); it could be \
            used \(StoreHealth.text(time)) after the search had begun
            """
        say(.note, text)
    }

    /// Requests, or a trial, have succeeded.
    func noteSuccess(isWrite: Bool) {
        guard isTroubled.load(ordering: .relaxed) else { return }
        note { $0.noteSuccess(isWrite: isWrite, at: $1) }
    }

    /// A request has failed because of the database or the way to it.
    ///
    /// - Parameter time: How long the request has lasted.
    func noteFailure(_ fault: StoreFault, isWrite: Bool, after time: Duration = .zero) {
        note { health, now in
            let began = MonotonicTime(nanoseconds: now.nanoseconds - min(now.nanoseconds, Nanoseconds(time).count))
            return health.noteFailure(fault, isWrite: isWrite, since: began, at: now)
        }
    }

    // MARK: - Refused servers

    private let refusalWatchers = Mutex<[@Sendable (ServerIdentity, String) -> Void]>([])

    /// Sets a function that is called, on any thread, whenever a server is found that must not be used, with the reason: its
    /// settings have changed, so what it acknowledges may be lost.
    func watchRefusals(_ watcher: @escaping @Sendable (ServerIdentity, String) -> Void) {
        refusalWatchers.withLock { $0.append(watcher) }
    }

    // MARK: - Walk

    /// As this process last saw it; nil before that.
    private let lastWalk = Mutex<WalkState?>(nil)

    func note(_ walk: WalkState) {
        lastWalk.withLock { $0 = walk }
    }

    var walk: WalkStatus? {
        lastWalk.withLock(\.self).map { walk in
            WalkStatus(walk, total: walk.last.map { $0.tokens + $0.sessions } ?? 0)
        }
    }

    // MARK: - Retention

    var retention: Retention { currentRetention.withLock(\.self) }

    func change(_ retention: Retention) {
        currentRetention.withLock { $0 = retention }
    }
}

extension PostgresState {
    /// Records what a host has said of itself, and tells operators, once, of what may be wrong with it if it takes writes.
    ///
    /// - Parameters:
    ///   - index: See `KnownHosts.note`.
    ///   - rules: What its settings mean for acknowledged tokens.
    func note(_ facts: HostFacts, of index: Int?, _ rules: DurabilityRules) {
        hosts.note(facts, of: index)
        guard facts.isWritable else { return }
        if facts.isClockOff {
            let text = "\(facts.clockDifferenceText): \(HostFacts.clockAdvice)"
            sayOnce(.warning, text, as: "the clock of \(facts.address)")
        }
        guard let refusal = rules.refusal else {
            for warning in rules.warnings { sayOnce(.warning, warning.text) }
            return
        }
        // Called each time, as a connection may have been made just before the settings changed.
        for watcher in refusalWatchers.withLock(\.self) { watcher(ServerIdentity(facts), refusal) }
    }
}

/// Remembers which faults were reported, so that each is reported when it begins, and again when it comes back.
final class OnceEach: Sendable {
    /// When each was seen last.
    private let seen = Mutex<[String: MonotonicTime]>([:])
    private let absence: Nanoseconds
    private static let limit = 100

    /// - Parameter absence: After how long without being seen a fault counts as over; longer than the time between two checks.
    init(absence: Duration = .seconds(300)) {
        self.absence = Nanoseconds(absence)
    }

    /// Whether a fault must be reported; called each time that it is found.
    func isNew(_ text: String, at now: MonotonicTime = .now) -> Bool {
        seen.withLock { seen in
            seen = seen.filter { now - $1 < absence }
            guard seen[text] != nil || seen.count < Self.limit else { return false }
            return seen.updateValue(now, forKey: text) == nil
        }
    }
}
#endif
