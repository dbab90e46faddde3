#if PostgreSQL
internal import Glibc
internal import System
internal import TokenStore

/// Makes one connection to one host: everything that a connection needs before it can serve.
struct Dial: Sendable {
    let target: ConnectionTarget
    let host: ConnectionTarget.Host
    let timeout: Duration
    let durability: StoreDurability
    let trial: Trial
    let proofs: Proofs
    /// Told of what the host is, whether or not it is used.
    let learn: @Sendable (HostFacts, DurabilityRules) -> Void

    /// Whether a commit is tried on the new connection.
    enum Trial: Hashable, Sendable {
        /// If it has to prove that the host is the primary.
        case asNeeded
        /// Wherever a commit may wait for a standby: the connection is to take the place of one on which a commit waits, and if
        /// that were in vain, each attempt would leave a process of the server behind that goes on waiting.
        case always
        /// No, as since this moment no other host can be the primary.
        case none(evidence: MonotonicTime)
    }

    /// Why a host is not used.
    enum Refusal: Error, Sendable {
        /// It takes no writes.
        case standby
        /// It takes writes and answers, but its commits do not return: its standbys are away, or follow another server.
        case unproven
        /// It cannot be reached, or not used as it is.
        case failed(PostgresError)

        var isUnproven: Bool { if case .unproven = self { true } else { false } }

        /// Whether the host is certainly not the primary: it follows another server, or no server runs there.
        var isCertain: Bool {
            switch self {
            case .standby: true
            case .unproven: false
            case .failed(let error): error.isRefusedConnection
            }
        }
    }

    /// Connects, on a thread that may wait.
    func run() -> Result<ReadyConnection, Refusal> {
        do throws(Refusal) {
            return .success(try connect())
        } catch {
            return .failure(error)
        }
    }

    private func connect() throws(Refusal) -> ReadyConnection {
        let found: ReadyConnection?
        do throws(PostgresError) {
            found = try connect(until: .now + Nanoseconds(timeout))
        } catch {
            throw error == Self.isStandby ? .standby : .failed(error)
        }
        guard let found else { throw .unproven }
        return found
    }

    /// - Returns: Nil if the host's commits do not return.
    private func connect(until deadline: MonotonicTime) throws(PostgresError) -> ReadyConnection? {
        let parameters = target.parameters(for: host, unanswered: max(1, Int(timeout.components.seconds)))
        let session = try saying("has not accepted a connection") { () throws(PostgresError) in
            try BlockingSession(connectingWith: parameters, until: deadline)
        }
        let facts = try saying("has not said what it is") { () throws(PostgresError) in
            try HostFacts(of: session, until: deadline)
        }
        let rules = DurabilityRules(facts, durability)
        learn(facts, rules)
        if facts.isInRecovery { throw Self.isStandby }
        if facts.isReadOnly {
            let text = "it takes no writes, as default_transaction_read_only is on there or for the role of this server"
            throw .statement(.readOnly, text)
        }
        if !rules.refusals.isEmpty { throw .unexpected(rules.refusals.joined(separator: "; ")) }
        if needsProof { try awaitUse(session, facts, until: deadline) }
        let isFree = try session.run("SELECT pg_try_advisory_lock_shared\(Schema.useLock)", until: deadline) {
            (result) throws(PostgresError) in result.integer(0, 0) != 0
        }
        guard isFree else {
            throw .unexpected("token-cache copy fills the store, which can be used when that has ended")
        }
        try saying("has not prepared the statements") { () throws(PostgresError) in
            try prepare(session, until: .now + Nanoseconds(timeout))
        }
        var provenAt = MonotonicTime.now
        if case .none(let evidence) = trial { provenAt = evidence }
        let isTried = triesCommit
        if isTried, try !prove(session) { return nil }
        return ReadyConnection(
            connection: session.connection, server: ServerIdentity(facts), description: Self.description(of: facts),
            needsProof: needsProof, provenAt: provenAt,
            canCommit: isTried)
    }

    private var triesCommit: Bool {
        switch trial {
        case .asNeeded: needsProof
        case .always: true
        case .none: false
        }
    }

    private static let isStandby = PostgresError.statement(.readOnly, "it is a standby")

    /// Says what a host has not done when the time is over.
    private func saying<Value>(
        _ missing: String, _ body: () throws(PostgresError) -> Value
    ) throws(PostgresError) -> Value {
        do throws(PostgresError) {
            return try body()
        } catch {
            guard case .timedOut = error else { throw error }
            throw .timedOut("\(missing) within \(timeout)")
        }
    }

    private static func description(of facts: HostFacts) -> String {
        let timeline = facts.timeline.map { " (timeline \($0))" } ?? ""
        return "\(facts.software) at \(facts.address)\(timeline)"
    }

    private var needsProof: Bool { durability == .synchronous }

    /// Waits until what a server that was the primary before still gives does not count any more; see Fence.
    private func awaitUse(
        _ session: BlockingSession, _ facts: HostFacts, until deadline: MonotonicTime
    ) throws(PostgresError) {
        let proof = proofs.proof(of: ServerIdentity(facts))
        guard proof.usableFrom > .now else { return }
        if try hasLongBeenPrimary(session, facts, until: deadline) { return proof.allowUse() }
        while case let left = proof.usableFrom - .now, left.count > 0 { usleep(UInt32(left.count / 1_000 + 1)) }
    }

    /// Whether the server has certainly been the primary for some seconds: each promotion is followed by a checkpoint.
    private func hasLongBeenPrimary(
        _ session: BlockingSession, _ facts: HostFacts, until deadline: MonotonicTime
    ) throws(PostgresError) -> Bool {
        guard let timeline = facts.timeline else { return false }
        var parameters = Parameters()
        parameters.append(timeline)
        do throws(PostgresError) {
            return try session.run(
                """
                SELECT timeline_id = $1::bigint AND checkpoint_time < clock_timestamp() - interval '5 seconds'
                FROM pg_control_checkpoint()
                """, parameters, until: deadline
            ) { (result) throws(PostgresError) in result.rowCount == 1 && result.integer(0, 0) != 0 }
        } catch {
            // The role may not ask for it.
            if error.endsConnection { throw error }
            return false
        }
    }

    /// Prepares all statements in one round trip.
    private func prepare(_ session: BlockingSession, until deadline: MonotonicTime) throws(PostgresError) {
        let connection = session.connection
        try connection.enterPipelineMode()
        try connection.send(sql: BlockingSession.lockLimit, BlockingSession.parameters(ofLockLimit: timeout))
        for statement in Statement.allCases { try connection.sendPrepare(statement.name, statement.sql) }
        if needsProof || triesCommit { try connection.sendPrepare(Fence.name, Fence.sql) }
        try connection.sendSync()
        try synchronize(session, until: deadline)
    }

    /// How long the commit of a proof may take.
    private static let proofTime = Nanoseconds(.seconds(1))

    /// Whether a commit returns.
    private func prove(_ session: BlockingSession) throws(PostgresError) -> Bool {
        _ = session.connection.takeWarning()
        try session.connection.send(Fence.name, Parameters())
        try session.connection.sendSync()
        do throws(PostgresError) {
            try synchronize(session, until: .now + Self.proofTime)
        } catch {
            guard case .timedOut = error else { throw error }
            // Otherwise the server's process would wait for the standby even after the connection is closed. What it has
            // committed is a message without a meaning.
            session.connection.cancel()
            return false
        }
        if let warning = session.connection.takeWarning() { throw warning }
        return true
    }

    /// Takes all answers up to that of the Sync.
    private func synchronize(_ session: BlockingSession, until deadline: MonotonicTime) throws(PostgresError) {
        try session.flush(until: deadline)
        var failure: PostgresError?
        while true {
            try session.awaitResult(until: deadline)
            guard let result = session.connection.nextResult() else {
                if session.connection.isLost { throw failure ?? .connection("PostgreSQL has closed the connection") }
                continue
            }
            switch result.kind {
            case .failed(let error):
                if session.connection.isLost { throw error }
                failure = failure ?? error
            case .synchronized:
                if let failure { throw failure }
                return
            case .rows, .done, .skipped: break
            }
        }
    }
}

/// A connection to a primary, in pipeline mode, with all statements prepared.
struct ReadyConnection: Sendable {
    let connection: PostgresConnection
    let server: ServerIdentity
    /// The server for people, such as `PostgreSQL 15.18 at db1:5432 (timeline 1)`.
    let description: String
    /// Whether commits have to prove that the server is still the primary; see Fence.
    let needsProof: Bool
    /// When the commit began that has proven it.
    let provenAt: MonotonicTime
    /// Whether commits are known to return there: one was tried.
    let canCommit: Bool
}

extension ServerIdentity {
    init(_ facts: HostFacts) {
        self.init(address: facts.address, timeline: facts.timeline ?? 0)
    }
}
#endif
