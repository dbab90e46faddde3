#if PostgreSQL
import Glibc
import System
import TokenStore

/// Makes one connection to one host, and all that it needs before it can serve.
struct Dial: Sendable {
    let options: PostgresOptions
    let host: DatabaseHost
    let trial: Trial
    let proofs: Proofs
    /// Called with what the host is, whether or not it is used.
    let learn: @Sendable (HostFacts, DurabilityRules) -> Void

    /// Whether a commit is tried on the new connection.
    enum Trial: Hashable, Sendable {
        /// If the host must prove that it is the primary.
        case asNeeded
        /// Yes: the connection is to replace one that does not answer. Without a trial, a host whose commits do not return would
        /// be used again and again, and each time leave a process of the server behind that goes on waiting.
        case always
        /// No: since this moment, no other host can have been the primary, as all are standbys.
        case none(evidence: MonotonicTime)
    }

    /// Why a host is not used.
    enum Refusal: Error, Sendable {
        /// It takes no writes.
        case standby
        /// It takes writes and answers, but its commits do not return: its standbys are down, or follow another server.
        case unproven
        /// It cannot be reached, or cannot be used as it is.
        case failed(PostgresError)

        var isUnproven: Bool { if case .unproven = self { true } else { false } }

        /// Whether the host is certainly not the primary.
        ///
        /// One that refuses connections may be a later primary that is being restarted.
        var isStandby: Bool { if case .standby = self { true } else { false } }
    }

    /// Connects; blocks its thread.
    func run() -> Result<ReadyConnection, Refusal> {
        do throws(PostgresError) {
            guard let ready = try connect() else { return .failure(.unproven) }
            return .success(ready)
        } catch {
            return .failure(error == .isStandby ? .standby : .failed(error))
        }
    }

    /// - Returns: Nil if the host's commits do not return.
    private func connect() throws(PostgresError) -> ReadyConnection? {
        let parameters = options.parameters(for: host, unanswered: options.timeout)
        let connection = try BlockingConnection(parameters, until: .now + Nanoseconds(options.timeout))
        let facts = try HostFacts(of: connection)
        let rules = DurabilityRules(facts, options.durability)
        learn(facts, rules)
        if let refusal = facts.refusal(rules) { throw refusal }
        guard try connection.integer("SELECT pg_try_advisory_lock_shared\(Schema.useLock)") == 1 else {
            throw .unexpected("token-cache copy fills the store, which can be used when that has ended")
        }
        var provenAt = MonotonicTime.now
        if case .none(let evidence) = trial { provenAt = evidence }
        try connection.configure(lockTimeout: options.timeout)
        if triesCommit, try !commits(connection) { return nil }
        // Until then, answers of the former primary may still count; see Fence.
        let usableFrom = proofs.proof(of: ServerIdentity(facts)).usableFrom
        while needsProof, case let left = usableFrom - .now, left.count > 0 { usleep(UInt32(left.count / 1_000 + 1)) }
        // The host has answered, and the waits above may have used up its time.
        try prepare(connection.until(.now + Nanoseconds(options.timeout)))
        return ReadyConnection(
            connection: connection.postgres, server: ServerIdentity(facts), description: facts.description,
            needsProof: needsProof, provenAt: provenAt, canCommit: triesCommit)
    }

    private var triesCommit: Bool {
        switch trial {
        case .asNeeded: needsProof
        case .always: true
        case .none: false
        }
    }

    private var needsProof: Bool { options.durability == .synchronous }

    /// How long the commit of a proof may take.
    private static let proofTime = Duration.seconds(1)

    /// Tries a commit; returns whether it returns in time.
    private func commits(_ connection: BlockingConnection) throws(PostgresError) -> Bool {
        do throws(PostgresError) {
            try Fence.prove(connection.until(.now + Nanoseconds(options.timeout)), within: Self.proofTime)
            return true
        } catch {
            guard case .timedOut = error else { throw error }
            return false
        }
    }

    /// Prepares all statements in one round trip.
    private func prepare(_ connection: BlockingConnection) throws(PostgresError) {
        let postgres = connection.postgres
        try postgres.enterPipelineMode()
        for statement in Statement.allCases { try postgres.sendPrepare(statement.name, statement.sql) }
        try postgres.sendSync()
        try connection.flush()
        var failure: PostgresError?
        while true {
            try connection.awaitResult()
            guard let result = postgres.nextResult() else {
                if postgres.isLost { throw failure ?? .connection("PostgreSQL has closed the connection") }
                continue
            }
            switch result.kind {
            case .failed(let error): failure = failure ?? error
            case .synchronized:
                if let failure { throw failure }
                return
            case .answer, .skipped: break
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
    /// When the commit began that has proven that the server is the primary.
    let provenAt: MonotonicTime
    /// Whether a commit was tried there, and has returned.
    let canCommit: Bool
}
#endif
