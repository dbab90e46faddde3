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
        let target: ConnectionTarget
        do throws(PostgresError) {
            target = try ConnectionTarget(url: options.url, password: options.password)
        } catch {
            var inspection = StoreInspection()
            inspection.findings = [.problem("\(error)", "correct store.url")]
            return inspection
        }
        let found = Mutex<[Int: HostInspection]>([:])
        // At once, as a host that does not answer takes its time.
        DispatchQueue.concurrentPerform(iterations: target.hosts.count) { index in
            let host = HostInspection(target, target.hosts[index], within: options.timeout)
            found.withLock { $0[index] = host }
        }
        let hosts = found.withLock { found in target.hosts.indices.compactMap { found[$0] } }
        return InspectionRules(hosts, options.durability).inspection
    }
}

/// One host's answers to the doctor.
struct HostInspection: Sendable {
    /// As in the settings.
    let name: String
    let outcome: Result<Answer, PostgresError>

    struct Answer: Sendable {
        var facts: HostFacts
        var role: String
        var isSuperuser = false
        /// Whether a standby is connected to the server that it follows.
        var isFollowing = false
        /// Standbys that are connected.
        var standbys: [Standby] = []
        /// Of the primary.
        var tables: Result<StoreRow, SchemaFault>?
    }

    /// A standby as the primary sees it.
    struct Standby: Hashable, Sendable {
        var name: String
        /// nil if the server's role may not see it.
        var isSynchronous: Bool?
    }

    /// Whether it takes writes.
    var isPrimary: Bool { if case .success(let answer) = outcome { answer.facts.isWritable } else { false } }
}

extension HostInspection {
    /// Asks a host.
    ///
    /// - Parameters:
    ///   - target: Where the hosts are.
    ///   - host: One of them.
    ///   - limit: For each step.
    init(_ target: ConnectionTarget, _ host: ConnectionTarget.Host, within limit: Duration) {
        name = host.description
        do throws(PostgresError) {
            outcome = .success(try Questions(target, host, limit).ask())
        } catch {
            outcome = .failure(error)
        }
    }
}

/// The statements of an inspection.
private struct Questions {
    private let target: ConnectionTarget
    private let host: ConnectionTarget.Host
    private let limit: Duration

    init(_ target: ConnectionTarget, _ host: ConnectionTarget.Host, _ limit: Duration) {
        (self.target, self.host, self.limit) = (target, host, limit)
    }

    private var deadline: MonotonicTime { .now + Nanoseconds(limit) }

    private func connect() throws(PostgresError) -> BlockingSession {
        try BlockingSession(
            connectingWith: target.parameters(for: host, unanswered: max(1, Int(limit.components.seconds))),
            until: deadline)
    }

    func ask() throws(PostgresError) -> HostInspection.Answer {
        let session = try connect()
        let facts = try HostFacts(of: session, until: deadline)
        let (role, isSuperuser) = try session.run(
            """
            SELECT current_user::text, coalesce((SELECT rolsuper FROM pg_roles WHERE rolname = current_user), false)
            """, until: deadline
        ) { (result) throws(PostgresError) in (result.text(0, 0), result.integer(0, 1) != 0) }
        var answer = HostInspection.Answer(facts: facts, role: role, isSuperuser: isSuperuser)
        try askOfReplication(session, &answer)
        if facts.isWritable { answer.tables = try SchemaCheck.look(session, until: deadline) }
        return answer
    }

    private func askOfReplication(
        _ session: BlockingSession, _ answer: inout HostInspection.Answer
    ) throws(PostgresError) {
        guard answer.facts.isWritable else {
            answer.isFollowing = try session.run("SELECT count(*) FROM pg_stat_wal_receiver", until: deadline) {
                (result) throws(PostgresError) in result.integer(0, 0) > 0
            }
            return
        }
        answer.standbys = try session.run(
            "SELECT application_name::text, sync_state::text FROM pg_stat_replication ORDER BY 1", until: deadline
        ) { (result) throws(PostgresError) in
            (0..<result.rowCount).map { row in
                HostInspection.Standby(
                    name: result.text(row, 0), isSynchronous: result.optionalText(row, 1).map { $0 != "async" })
            }
        }
    }
}
#endif
