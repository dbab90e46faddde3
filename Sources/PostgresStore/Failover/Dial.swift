#if PostgreSQL
internal import System
internal import TokenStore

/// Makes one connection to one host: everything that a connection needs before it can serve.
struct Dial: Sendable {
    let target: ConnectionTarget
    let host: ConnectionTarget.Host
    let timeout: Duration
    let durability: StoreDurability
    /// Told of settings of the server that may lose writes, although it is used.
    let warn: @Sendable (String) -> Void

    /// Why a host is not used.
    enum Refusal: Error, Sendable {
        /// It takes no writes.
        case standby
        /// It cannot be reached, or not used as it is.
        case failed(PostgresError)
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
        let deadline = MonotonicTime.now + Nanoseconds(timeout)
        do throws(PostgresError) {
            let parameters = target.parameters(for: host, unanswered: max(1, Int(timeout.components.seconds)))
            let session = try BlockingSession(connectingWith: parameters, until: deadline)
            let facts = try HostFacts(of: session, until: deadline)
            guard facts.isWritable else { throw .statement(.readOnly, "the server takes no writes") }
            try check(facts)
            try prepare(session, facts, until: deadline)
            let provenAt = MonotonicTime.now
            if needsProof(facts) { try prove(session, until: deadline) }
            return ReadyConnection(
                connection: session.connection, server: ServerIdentity(facts),
                needsProof: needsProof(facts), provenAt: provenAt, sharesCommits: facts.engine.sharesCommits)
        } catch {
            if error.state == .readOnly { throw .standby }
            throw .failed(error)
        }
    }

    private func needsProof(_ facts: HostFacts) -> Bool {
        durability == .synchronous && facts.engine.hasSynchronousStandbys
    }

    private func check(_ facts: HostFacts) throws(PostgresError) {
        let rules = DurabilityRules(facts, durability)
        if !rules.refusals.isEmpty { throw .unexpected(rules.refusals.joined(separator: "; ")) }
        for warning in rules.warnings { warn(warning) }
    }

    /// Prepares all statements in one round trip.
    private func prepare(
        _ session: BlockingSession, _ facts: HostFacts, until deadline: MonotonicTime
    ) throws(PostgresError) {
        let connection = session.connection
        try connection.enterPipelineMode()
        for statement in Statement.allCases { try connection.sendPrepare(statement.name, statement.sql) }
        if needsProof(facts) { try connection.sendPrepare(Fence.name, Fence.sql) }
        try connection.sendSync()
        try synchronize(session, until: deadline)
    }

    private func prove(_ session: BlockingSession, until deadline: MonotonicTime) throws(PostgresError) {
        _ = session.connection.takeWarning()
        try session.connection.send(Fence.name, Parameters())
        try session.connection.sendSync()
        try synchronize(session, until: deadline)
        if let warning = session.connection.takeWarning() { throw warning }
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
#endif
