#if PostgreSQL
import Dispatch
import Synchronization
import System
import TokenStore

/// The heading of what the doctor says of the database.
private let topic = "Database"

/// Asks all hosts of the database, for the doctor.
struct DatabaseInspector {
    let options: PostgresOptions

    func inspect() -> StoreInspection {
        let found = Mutex([HostInspection?](repeating: nil, count: options.hosts.count))
        // All at the same time, as each may use up its time without an answer.
        DispatchQueue.concurrentPerform(iterations: options.hosts.count) { index in
            let host = HostInspection(options.hosts[index], options)
            found.withLock { $0[index] = host }
        }
        return StoreInspection(found.withLock { $0.compactMap(\.self) }, options.durability)
    }
}

/// What one host of the database has answered to the doctor.
struct HostInspection: Sendable {
    /// The host as in the settings.
    let name: String
    var facts: Result<HostFacts, PostgresError>
    /// Why a commit has not returned; nil if it has, or if the host takes no writes.
    var commitError: PostgresError?
    /// Nil if the host takes no writes.
    var tables: Result<StoreRow, PostgresError>?

    /// The facts of a host that takes writes; nil if it takes none.
    fileprivate var primary: HostFacts? {
        if case .success(let facts) = facts, facts.isWritable { facts } else { nil }
    }

    /// Whether it has refused this connection because there were too many.
    fileprivate var isFull: Bool {
        if case .failure(let error) = facts { error.state == .tooManyConnections } else { false }
    }
}

extension HostInspection {
    /// Asks a host, with the time limit of a client's request.
    init(_ host: DatabaseHost, _ options: PostgresOptions) {
        (name, facts) = (host.description, .failure(.unexpected("it was not asked")))
        do throws(PostgresError) {
            let limit = options.timeout
            let parameters = options.parameters(for: host, unanswered: limit)
            let connection = try BlockingConnection(parameters, until: .now + limit)
            facts = .success(try HostFacts(of: connection))
            guard primary != nil else { return }
            tables = Result { () throws(PostgresError) in try Schema.check(connection) }
            if case .failure(let error) = tables, error.mayRetry { throw error }
            do {
                try Fence.prove(connection.until(.now + limit), within: limit)
            } catch {
                commitError = error
            }
        } catch {
            facts = .failure(error)
        }
    }
}

/// What the hosts' answers mean, and what an operator should do about them.
extension StoreInspection {
    init(_ hosts: [HostInspection], _ durability: StoreDurability) {
        self.init()
        let primaries = hosts.filter { $0.primary != nil }
        findings = hosts.map { host in
            switch host.facts {
            case .success(let facts): Self.judge(facts)
            case .failure(let error): Self.judge(host.name, error, isOnly: primaries.isEmpty)
            }
        }
        // A host that accepts no further connection may still serve those that it has.
        if primaries.isEmpty, !hosts.contains(where: \.isFull) {
            findings.append(
                .problem(
                    topic, "no host of store.url takes writes, so tokens can be neither stored nor read",
                    "solve the problems of the hosts, or promote a standby"))
        }
        if primaries.count > 1 {
            findings.append(
                .problem(
                    topic,
                    "\(primaries.compactMap(\.primary?.address).joined(separator: " and ")) take writes, each for itself",
                    """
                    the one with the lower timeline was replaced: shut it down before somebody reads from it, and make it a standby of \
                    the other one (pg_rewind)
                    """))
        }
        guard let latest = primaries.max(by: { $0.primary?.timeline ?? 0 < $1.primary?.timeline ?? 0 }),
            let facts = latest.primary
        else { return }
        let rules = DurabilityRules(facts, durability)
        findings += rules.refusals.map(\.parts).map { .problem(topic, $0, $1) }
        findings += rules.warnings.map(\.parts).map { .warning(topic, $0, $1) }
        findings.append(Self.judgeCommit(latest.commitError, facts.address, durability))
        findings.append(
            facts.isClockOff
                ? .warning(topic, facts.clockDifferenceText, HostFacts.clockAdvice)
                : .ok(topic, "the clock of \(facts.address) agrees with this machine's"))
        switch latest.tables {
        case nil: break
        case .failure(let error)?: findings.append(.problem(topic, error.parts.text, error.parts.advice))
        case .success(let row)?:
            findings.append(
                .ok(topic, "the database has schema \(row.schemaVersion), and this role may do what a server does"))
            if !row.isSealed { findings.append(.problem(topic, StoreOpenError.notSealed(place: "the database"))) }
            sealing = row.keyRing.map {
                StoreSealing(keyRing: KeyRing.fingerprint($0), keyNumbers: Set(row.fingerprints.keys))
            }
        }
    }

    private static func judge(_ name: String, _ error: PostgresError, isOnly: Bool) -> Finding {
        let (reason, advice) = error.parts
        let text = "\(name) is of no use: \(reason)"
        return isOnly ? .problem(topic, text, advice) : .warning(topic, text, advice)
    }

    private static func judge(_ facts: HostFacts) -> Finding {
        let software = "\(facts.software)\(facts.timeline.map { ", timeline \($0)" } ?? "")"
        let encryption = facts.usesTLS ? ", with TLS" : ""
        if facts.isInRecovery { return .ok(topic, "\(facts.address) is a standby: \(software)\(encryption)") }
        guard facts.isReadOnly else { return .ok(topic, "\(facts.address) is the primary: \(software)\(encryption)") }
        return .warning(
            topic,
            "\(facts.address) takes no writes: default_transaction_read_only is on there, or for this role or database",
            "set it to off, if this host is to be the primary")
    }

    private static func judgeCommit(
        _ error: PostgresError?, _ address: String, _ durability: StoreDurability
    ) -> Finding {
        switch error {
        case nil where durability == .local: .ok(topic, "commits return on \(address)")
        case nil: .ok(topic, "commits return on \(address), when a standby has acknowledged them")
        case .timedOut?:
            .problem(
                topic,
                "no standby acknowledges the commits on \(address), so they do not return, and no token can be stored",
                """
                attach a standby that synchronous_standby_names has (pg_stat_replication there shows those that are connected), or \
                set store.durability: local and empty synchronous_standby_names
                """)
        case let error?: .problem(topic, "a commit on \(address) has failed: \(error)", "read its log")
        }
    }
}

extension PostgresError {
    /// What is wrong, and what an operator has to do.
    fileprivate var parts: (text: String, advice: String) {
        switch self {
        case .statement(let state, _): (text, state.advice ?? "read the log of PostgreSQL on that host")
        case .unexpected(let text, let advice): (text, advice ?? "correct that, and run the doctor again")
        case .connection, .timedOut:
            (text, "check that PostgreSQL runs there, listens on this port, and can be reached from this machine")
        }
    }
}
#endif
