#if PostgreSQL
internal import TokenStore

/// The rules that turn the hosts' answers into findings and advice for operators.
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
        inspection.findings +=
            judgeDurability(primary) + judgeClock(primary.facts)
            + judgeRole(primary) + judgePooler(primary.facts) + judgeTables(primary)
        if case .success(let row)? = primary.tables, row.isDecided {
            inspection.sealing = StoreInspection.Sealing(
                keyRing: row.keyRing.map(KeyRing.fingerprint), keyNumbers: Set(row.fingerprints.keys))
        }
        return inspection
    }

    // MARK: - Hosts

    private func judge(_ host: HostInspection) -> StoreFinding {
        switch host.outcome {
        case .failure(let error): judge(host.name, error)
        case .success(let answer): answer.facts.isWritable ? judgePrimary(answer) : judgeStandby(answer)
        }
    }

    private func judge(_ name: String, _ error: PostgresError) -> StoreFinding {
        let text =
            switch error {
            case .statement(let state, let text): "\(name) is of no use: \(text) (SQLSTATE \(state))"
            case .connection(let text), .timedOut(let text), .unexpected(let text): "\(name) is of no use: \(text)"
            }
        let advice =
            error.state?.advice
            ?? (error.isFromServer
                ? "read the log of PostgreSQL on that host"
                : "check that PostgreSQL runs there, listens on this port, and can be reached from this machine")
        return primaries.isEmpty ? .problem(text, advice) : .warning(text, advice)
    }

    private func judgePrimary(_ answer: HostInspection.Answer) -> StoreFinding {
        let timeline = answer.facts.timeline.map { ", timeline \($0)" } ?? ""
        return .fine("\(answer.facts.address) is the primary: \(answer.facts.software)\(timeline)\(encryption(answer))")
    }

    private func judgeStandby(_ answer: HostInspection.Answer) -> StoreFinding {
        let facts = answer.facts
        guard facts.isInRecovery else {
            return .warning(
                "\(facts.address) takes no writes: default_transaction_read_only is on there, or for this role or database",
                "set it to off, if this host is to be the primary")
        }
        guard answer.isFollowing else {
            return .warning(
                "\(facts.address) is a standby that is not connected to a primary",
                "check primary_conninfo there, and read the log of PostgreSQL on that host")
        }
        return .fine("\(facts.address) is a standby: \(facts.software)\(encryption(answer))")
    }

    private func encryption(_ answer: HostInspection.Answer) -> String { answer.facts.usesTLS ? ", with TLS" : "" }

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
                the one with the lower timeline was replaced: shut it down before clients read from it, and make it a standby of \
                the other one (pg_rewind)
                """)
        ]
    }

    // MARK: - The primary

    private func judgeDurability(_ primary: HostInspection.Answer) -> [StoreFinding] {
        let rules = DurabilityRules(primary.facts, durability)
        let findings =
            rules.refusals.map { StoreFinding(sentence: $0, isProblem: true) }
            + rules.warnings.map { StoreFinding(sentence: $0, isProblem: false) }
        let isSynchronous = durability == .synchronous && rules.refusals.isEmpty
        return findings + judgeStandbys(primary, areNeeded: isSynchronous)
    }

    private func judgeStandbys(_ primary: HostInspection.Answer, areNeeded: Bool) -> [StoreFinding] {
        let (standbys, address) = (primary.standbys, primary.facts.address)
        guard !standbys.isEmpty else {
            guard areNeeded else {
                return [.fine("no standby is connected to \(address), and store.durability asks for none")]
            }
            return [
                .problem(
                    "no standby is connected to \(address), so its commits do not return, and no token can be stored",
                    "attach a standby, or set store.durability: local and empty synchronous_standby_names there")
            ]
        }
        let count = standbys.count == 1 ? "1 standby is" : "\(standbys.count) standbys are"
        guard !standbys.contains(where: { $0.isSynchronous == nil }) else {
            return [
                .fine(
                    """
                    \(count) connected to \(address); only members of pg_read_all_stats may see their state, and \
                    \(primary.role) is not one
                    """)
            ]
        }
        let synchronous = standbys.count { $0.isSynchronous == true }
        let names = standbys.map { "\($0.name)\($0.isSynchronous == true ? "" : " (not synchronous)")" }
        let text = "\(count) connected to \(address): \(names.joined(separator: ", "))"
        guard areNeeded, synchronous == 0 else { return [.fine(text)] }
        return [
            .problem(
                "\(text); none of them is synchronous, so no token can be stored",
                "name them in synchronous_standby_names there")
        ]
    }

    private func judgeClock(_ facts: HostFacts) -> [StoreFinding] {
        guard facts.isClockOff else {
            return [.fine("the clock of \(facts.address) agrees with this machine's")]
        }
        return [.warning(facts.clockDifferenceText, HostFacts.clockAdvice)]
    }

    private func judgeRole(_ primary: HostInspection.Answer) -> [StoreFinding] {
        guard primary.isSuperuser else { return [] }
        return [
            .warning(
                "the role \(primary.role) is a superuser, and may do far more than a server needs",
                "make a role for the servers with deploy/postgresql/roles.sql, and name it in store.url")
        ]
    }

    private func judgePooler(_ facts: HostFacts) -> [StoreFinding] {
        guard facts.isPooled else { return [] }
        return [
            .fine(
                """
                between this machine and \(facts.address) is a pooler, such as PgBouncer; its pool_mode has to be session
                """)
        ]
    }

    private func judgeTables(_ primary: HostInspection.Answer) -> [StoreFinding] {
        switch primary.tables {
        case nil: return []
        case .failure(let fault): return [StoreFinding(fault)]
        case .success(let row):
            let text = "the database has schema \(row.schemaVersion), and \(primary.role) may do what a server does"
            return [.fine(text)]
        }
    }
}

extension StoreFinding {
    /// Of a sentence that says after a colon what to do.
    fileprivate init(sentence: String, isProblem: Bool, separator: String = ": ") {
        let parts = sentence.split(separator: separator, maxSplits: 1).map(String.init)
        let advice = parts.count == 2 ? parts[1] : "correct that, and run the doctor again"
        self = isProblem ? .problem(parts[0], advice) : .warning(parts[0], advice)
    }

    fileprivate init(_ fault: SchemaFault) {
        switch fault {
        case .privileges: self.init(sentence: "\(fault)", isProblem: true, separator: "; ")
        default: self.init(sentence: "\(fault)", isProblem: true)
        }
    }
}
#endif
