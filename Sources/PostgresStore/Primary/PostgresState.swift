#if PostgreSQL
internal import Cryptography
internal import Glibc
internal import Synchronization
internal import System
internal import TokenStore

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
    let refusedServers = RefusedServers()
    private let said = OnceEach()
    /// Tells operators what they should know.
    let report: @Sendable (StoreEvent) -> Void
    private let currentRetention: Mutex<Retention>
    /// Requests of all handles that wait for the database, and the bytes of their tokens.
    let waitingRequests = Atomic<Int>(0)
    let waitingBytes = Atomic<Int>(0)
    /// Bytes of tokens that may wait to be written.
    let queueLimit: Int
    let isClosed = Atomic<Bool>(false)
    /// Whether the database has refused a row as its key was retired, so that it is looked at which key seals.
    let hasRefusedKey = Atomic<Bool>(false)

    init(
        sealing: Sealing, versions: VersionClock, _ postgres: PostgresOptions, _ options: StoreOptions,
        report: @escaping @Sendable (StoreEvent) -> Void
    ) {
        self.sealing = sealing
        self.versions = versions
        counts = Mutex(PostgresCounts(postgres))
        let hosts = postgres.hosts.map(\.description)
        self.hosts = KnownHosts(hosts)
        self.report = report
        queueLimit = options.queueLimit
        currentRetention = Mutex(options.retention)
        health = Mutex(StoreHealth(places: hosts.joined(separator: ", "), at: .now))
    }

    func say(_ severity: StoreEvent.Severity, _ text: String) {
        report(.own(StoreNotice(severity, text)))
    }

    /// Tells operators of a fault that is found again and again, when it begins.
    ///
    /// - Parameter name: Identifies the fault, if its text differs each time.
    func sayOnce(_ severity: StoreEvent.Severity, _ text: String, as name: String? = nil) {
        if said.isNew(name ?? text) { say(severity, text) }
    }

    // MARK: - Opening

    /// Whether the tables and the keys are the right ones: before that nothing is asked of the database for clients or operators.
    private let isOpen = Atomic<Bool>(false)
    /// Why the store was not opened at the last attempt.
    private let openError = Mutex<StoreOpenError?>(nil)

    func noteNotOpened(_ error: StoreOpenError) {
        openError.withLock { $0 = error }
    }

    /// The keys of the store are those of `sealing`.
    func noteOpened() {
        isOpen.store(true, ordering: .releasing)
    }

    /// Why nothing can be done for clients; nil if it can.
    var refusal: StoreError? {
        if isClosed.load(ordering: .acquiring) { return .closed }
        return refusalOfOperators
    }

    /// Why nothing can be done for operators; nil if it can.
    var refusalOfOperators: StoreError? { isOpen.load(ordering: .acquiring) ? nil : unopened }

    private var unopened: StoreError {
        switch openError.withLock(\.self) {
        case .store(let fault)?: .unavailable(fault)
        case let error?: .unavailable(StoreFault("\(error)"))
        case nil: .unavailable(StoreFault("the database has not been reached yet", mayRetry: true))
        }
    }

    // MARK: - Health

    private let health: Mutex<StoreHealth>
    /// Whether `health` waits for a success; each answer asks for it.
    private let isTroubled = Atomic<Bool>(true)

    /// Notes a change, and reports the events that follow from it.
    func note(_ change: (inout StoreHealth, MonotonicTime) -> [StoreEvent]) {
        let events = health.withLock { health in
            defer { isTroubled.store(health.isTroubled, ordering: .relaxed) }
            return change(&health, .now)
        }
        for event in events { report(event) }
    }

    /// Why requests fail; nil while they do not, or have only begun to.
    var fault: StoreError? {
        refusalOfOperators ?? sealing.refusal.map { .sealing($0) } ?? health.withLock { $0.fault(at: .now) }
    }

    /// Open connections, by the names of their hosts.
    var connections: [String: Int] { health.withLock(\.connections) }

    /// Whether only a trial can show that requests no longer fail.
    func needsTrial(ofWrites areWrites: Bool) -> Bool {
        isTroubled.load(ordering: .relaxed) && health.withLock { $0.needsTrial(ofWrites: areWrites, at: .now) }
    }

    /// Why no primary can be found; nil if there is one, or if none is being looked for.
    var missingPrimary: String? { health.withLock(\.reasons) }

    /// Another server is the primary.
    ///
    /// Connections to the previous one may still be open, as it may merely be silent.
    ///
    /// - Parameters:
    ///   - ready: The first connection to it.
    ///   - former: The primary before.
    ///   - time: Since the search began.
    func noteTakeover(by ready: ReadyConnection, from former: ServerIdentity, after time: Nanoseconds) {
        let now = clock.unixTime
        count {
            $0.remote.failovers += 1
            $0.remote.lastFailover = now
        }
        let text = """
            \(ready.description) is the primary now in the place of \(former.address) (timeline \(former.timeline)); it could be \
            used \(StoreHealth.text(time)) after the search had begun
            """
        say(.note, text)
    }

    /// Requests were answered, or a trial was.
    func noteSuccess(isWrite: Bool) {
        guard isTroubled.load(ordering: .relaxed) else { return }
        note { $0.noteSuccess(isWrite: isWrite, at: $1) }
    }

    /// A request has failed because of the database or the way to it.
    ///
    /// - Parameter time: How long it was tried.
    func noteFailure(_ fault: StoreFault, isWrite: Bool, after time: Duration = .zero) {
        note { health, now in
            let began = MonotonicTime(nanoseconds: now.nanoseconds - min(now.nanoseconds, Nanoseconds(time).count))
            return health.noteFailure(fault, isWrite: isWrite, since: began, at: now)
        }
    }

    // MARK: - Retention

    var retention: Retention { currentRetention.withLock(\.self) }

    func change(_ retention: Retention) {
        currentRetention.withLock { $0 = retention }
    }
}

extension PostgresState {
    /// Takes notice of what a server that takes writes has told of itself, while it is used.
    ///
    /// - Parameter rules: What its settings mean for tokens that it has acknowledged.
    func note(_ facts: HostFacts, _ rules: DurabilityRules) {
        hosts.note(facts)
        warn(facts, rules)
        refusedServers.note(
            ServerIdentity(facts), rules.refusals.isEmpty ? nil : rules.refusals.joined(separator: "; "))
    }

    /// Tells operators, once, what they should know of a host that is used.
    func warn(_ facts: HostFacts, _ rules: DurabilityRules) {
        if rules.refusals.isEmpty {
            for warning in rules.warnings { sayOnce(.warning, warning) }
        }
        if facts.isClockOff {
            let text = "\(facts.clockDifferenceText): \(HostFacts.clockAdvice)"
            sayOnce(.warning, text, as: "the clock of \(facts.address)")
        }
    }
}

extension HostFacts {
    /// Clocks that differ by more are told of, in seconds: tokens and sessions live shorter or longer by as much.
    static let clockConcern = 1.0

    /// By how much the host's clock is ahead of this machine's, in seconds, for people.
    var clockDifferenceText: String {
        let seconds = Double(clockDifference) / 1e6
        let rounded = (abs(seconds) * 10).rounded() / 10
        return "the clock of \(address) is \(rounded) s \(seconds < 0 ? "behind" : "ahead of") this machine's"
    }

    /// Whether the clocks differ by more than they should.
    var isClockOff: Bool { abs(Double(clockDifference) / 1e6) > Self.clockConcern }

    static let clockAdvice = "check on both machines that timedatectl shows the clock as synchronized"
}

/// Remembers which faults were told of, so that one is told of when it begins, and again when it comes back.
final class OnceEach: Sendable {
    /// When each was seen last.
    private let seen = Mutex<[String: MonotonicTime]>([:])
    private let absence: Nanoseconds
    private static let limit = 100

    /// - Parameter absence: How long a fault has to be unseen to count as one that comes back; longer than the time between
    ///   two looks.
    init(absence: Duration = .seconds(300)) {
        self.absence = Nanoseconds(absence)
    }

    /// Whether a fault that exists now must be reported; called at each check.
    func isNew(_ text: String, at now: MonotonicTime = .now) -> Bool {
        seen.withLock { seen in
            seen = seen.filter { (now - $1).count < absence.count }
            guard seen[text] != nil || seen.count < Self.limit else { return false }
            return seen.updateValue(now, forKey: text) == nil
        }
    }
}
#endif
