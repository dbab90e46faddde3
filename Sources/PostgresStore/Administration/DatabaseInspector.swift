#if PostgreSQL
internal import Dispatch
internal import Synchronization
internal import System
internal import TokenStore

/// Looks at all hosts of the database, for the doctor.
struct DatabaseInspector: StoreInspector {
    private let options: PostgresOptions

    init(_ options: PostgresOptions) {
        self.options = options
    }

    func inspect() -> StoreInspection {
        let found = Mutex<[Int: HostInspection]>([:])
        // At once, as a host that does not answer takes its time.
        DispatchQueue.concurrentPerform(iterations: options.hosts.count) { index in
            let host = HostInspection(options.hosts[index], options)
            found.withLock { $0[index] = host }
        }
        let hosts = found.withLock { found in options.hosts.indices.compactMap { found[$0] } }
        return InspectionRules(hosts, options.durability).inspection
    }
}

/// What one host of the database has answered to the doctor.
struct HostInspection: Sendable {
    /// As in the settings.
    let name: String
    let outcome: Result<Answer, PostgresError>

    struct Answer: Sendable {
        var facts: HostFacts
        var role: String
        /// Of the primary: why a commit has not returned; nil if it has.
        var commitError: PostgresError?
        /// Of the primary.
        var tables: Result<StoreRow, PostgresError>?
    }

    /// Whether it takes writes.
    var isPrimary: Bool { if case .success(let answer) = outcome { answer.facts.isWritable } else { false } }
}

extension HostInspection {
    /// Asks a host, for as long as a request may take.
    init(_ host: PostgresOptions.Host, _ options: PostgresOptions) {
        name = host.description
        do throws(PostgresError) {
            let limit = options.timeout
            let parameters = options.parameters(for: host, unanswered: limit)
            let connection = try BlockingConnection(parameters, until: .now + Nanoseconds(limit))
            let facts = try HostFacts(of: connection)
            var answer = Answer(facts: facts, role: try connection.role())
            if facts.isWritable {
                do throws(PostgresError) {
                    answer.tables = .success(try Schema.check(connection))
                } catch {
                    guard case .unexpected = error else { throw error }
                    answer.tables = .failure(error)
                }
                do throws(PostgresError) {
                    try Fence.prove(connection.until(.now + Nanoseconds(limit)), within: limit)
                } catch {
                    answer.commitError = error
                }
            }
            outcome = .success(answer)
        } catch {
            outcome = .failure(error)
        }
    }
}

/// What the hosts' answers mean, and what an operator should do about it.
struct InspectionRules: Sendable {
    private let hosts: [HostInspection]
    private let durability: StoreDurability

    init(_ hosts: [HostInspection], _ durability: StoreDurability) {
        (self.hosts, self.durability) = (hosts, durability)
    }

    private var primaries: [HostInspection.Answer] {
        hosts.filter(\.isPrimary).compactMap { try? $0.outcome.get() }
    }

    var inspection: StoreInspection {
        var inspection = StoreInspection()
        inspection.findings = hosts.map(judge) + judgePrimaries()
        guard let primary = primaries.max(by: { $0.facts.timeline ?? 0 < $1.facts.timeline ?? 0 }) else {
            return inspection
        }
        inspection.findings += judgeDurability(primary) + [judgeClock(primary.facts)] + judgeTables(primary)
        if case .success(let row)? = primary.tables, row.isDecided {
            inspection.sealing = StoreInspection.Sealing(
                keyRing: row.keyRing.map(KeyRing.fingerprint), keyNumbers: Set(row.fingerprints.keys))
        }
        return inspection
    }

    private func judge(_ host: HostInspection) -> StoreFinding {
        switch host.outcome {
        case .failure(let error): judge(host.name, error)
        case .success(let answer): judge(answer.facts)
        }
    }

    private func judge(_ name: String, _ error: PostgresError) -> StoreFinding {
        let text = "\(name) is of no use: \(error.text)"
        let advice =
            error.state?.advice
            ?? (error.isFromServer
                ? "read the log of PostgreSQL on that host"
                : "check that PostgreSQL runs there, listens on this port, and can be reached from this machine")
        return primaries.isEmpty ? .problem(text, advice) : .warning(text, advice)
    }

    private func judge(_ facts: HostFacts) -> StoreFinding {
        let software = "\(facts.software)\(facts.timeline.map { ", timeline \($0)" } ?? "")"
        let encryption = facts.usesTLS ? ", with TLS" : ""
        if facts.isInRecovery { return .fine("\(facts.address) is a standby: \(software)\(encryption)") }
        guard facts.isReadOnly else { return .fine("\(facts.address) is the primary: \(software)\(encryption)") }
        return .warning(
            "\(facts.address) takes no writes: default_transaction_read_only is on there, or for this role or database",
            "set it to off, if this host is to be the primary")
    }

    private func judgePrimaries() -> [StoreFinding] {
        let names = primaries.map(\.facts.address)
        if names.isEmpty {
            return [
                .problem(
                    "no host of store.url takes writes, so tokens can be neither stored nor read",
                    "solve the problems of the hosts, or promote a standby")
            ]
        }
        guard names.count > 1 else { return [] }
        return [
            .problem(
                "\(names.joined(separator: " and ")) take writes, each for itself",
                """
                the one with the lower timeline was replaced: shut it down before somebody reads from it, and make it a standby of \
                the other one (pg_rewind)
                """)
        ]
    }

    private func judgeDurability(_ primary: HostInspection.Answer) -> [StoreFinding] {
        let (rules, address) = (DurabilityRules(primary.facts, durability), primary.facts.address)
        var findings = rules.refusals.map { StoreFinding(sentence: $0, isProblem: true) }
        findings += rules.warnings.map { StoreFinding(sentence: $0, isProblem: false) }
        switch primary.commitError {
        case nil where durability == .local: findings.append(.fine("commits return on \(address)"))
        case nil: findings.append(.fine("commits return on \(address), when a standby has acknowledged them"))
        case .timedOut?:
            findings.append(
                .problem(
                    "no standby acknowledges the commits on \(address), so they do not return, and no token can be stored",
                    """
                    attach a standby that synchronous_standby_names has (pg_stat_replication there shows those that are connected), or \
                    set store.durability: local and empty synchronous_standby_names
                    """))
        case let error?: findings.append(.problem("a commit on \(address) has failed: \(error)", "read its log"))
        }
        return findings
    }

    private func judgeClock(_ facts: HostFacts) -> StoreFinding {
        facts.isClockOff
            ? .warning(facts.clockDifferenceText, HostFacts.clockAdvice)
            : .fine("the clock of \(facts.address) agrees with this machine's")
    }

    private func judgeTables(_ primary: HostInspection.Answer) -> [StoreFinding] {
        switch primary.tables {
        case nil: []
        case .failure(let error): [StoreFinding(sentence: error.text, isProblem: true)]
        case .success(let row):
            [.fine("the database has schema \(row.schemaVersion), and \(primary.role) may do what a server does")]
        }
    }
}

extension StoreFinding {
    /// Of a sentence that says after a colon what to do.
    fileprivate init(sentence: String, isProblem: Bool) {
        let parts = sentence.split(separator: ": ", maxSplits: 1).map(String.init)
        let advice = parts.count == 2 ? parts[1] : "correct that, and run the doctor again"
        self = isProblem ? .problem(parts[0], advice) : .warning(parts[0], advice)
    }
}
#endif
