#if PostgreSQL
import Glibc
import System
import TokenStore

/// Makes one connection to one host, and all that it needs before it can serve.
struct Dial: Sendable {
    private let hosts: HostAccess
    private let proofs: Proofs
    private let host: Int
    private let trial: Trial

    /// - Parameters:
    ///   - options: Where the hosts are, and how durable a write must be.
    ///   - state: Records what the host is, whether or not it is used.
    ///   - host: Its place in the settings.
    ///   - trial: Whether a commit is tried.
    init(_ options: PostgresOptions, _ state: PostgresState, host: Int, trial: Trial) {
        hosts = HostAccess(options: options, state: state)
        (proofs, self.host, self.trial) = (state.proofs, host, trial)
    }

    /// Whether a commit is tried on the new connection.
    enum Trial: Hashable, Sendable {
        /// If the host must prove that it is the primary.
        case asNeeded
        /// Yes: the connection is to replace one that does not answer. Without a trial, a host whose commits do not return would
        /// be used again and again, and each time leave a process of the server behind that goes on waiting.
        case always
        /// No: all other hosts are standbys, so none of them can have been the primary since this moment.
        case none(evidence: MonotonicTime)
    }

    /// Connects; blocks its thread.
    func run() throws(PostgresError) -> ReadyConnection {
        let timeout = hosts.options.timeout
        // While a row is locked, writes that have shared a transaction with one of that row have time to be repeated without it.
        let (first, facts) = try hosts.connect(
            to: host, patience: timeout, lockTimeout: timeout / 4, until: .now + timeout)
        let isComplete = "NOT EXISTS (SELECT FROM store WHERE schema_version = \(Schema.versionWhileFilled))"
        guard try first.integer("SELECT \(isComplete) AND pg_try_advisory_lock_shared\(Schema.useLock)") == 1 else {
            throw .unexpected("token-cache copy fills the store, which can be used when that is complete")
        }
        // The host has answered, and has as much time again for each of the following steps.
        var connection = first.until(.now + timeout)
        let needsProof = hosts.options.needsProof
        var (provenAt, triesCommit) = (SystemUptime.moment, needsProof || trial == .always)
        if case .none(let evidence) = trial { (provenAt, triesCommit) = (evidence, false) }
        if triesCommit { try prove(connection) }
        // Until then, answers of the former primary may still count; see Fence.
        let usableFrom = proofs.proof(of: ServerIdentity(facts)).usableFrom
        connection.deadline = .now + timeout
        // Done before the wait, as each takes a round trip.
        for statement in Statement.allCases { try connection.prepare(statement.name, statement.sql) }
        try connection.postgres.enterPipelineMode()
        while needsProof, case let left = usableFrom - SystemUptime.moment, left.count > 0 {
            usleep(UInt32(left.count / 1_000 + 1))
        }
        return ReadyConnection(
            connection: connection.postgres, facts: facts, needsProof: needsProof, provenAt: provenAt,
            canCommit: triesCommit)
    }

    /// How long the commit of a proof may take.
    private static let proofTime = Duration.seconds(1)

    /// Tries a commit.
    private func prove(_ connection: BlockingConnection) throws(PostgresError) {
        do {
            try Fence.prove(connection, within: Self.proofTime)
        } catch {
            if case .timedOut = error { throw .isUnproven }
            throw error
        }
    }
}

/// A connection to a primary, in pipeline mode, with all statements prepared.
struct ReadyConnection: Sendable {
    let connection: PostgresConnection
    let facts: HostFacts
    /// Whether commits have to prove that the server is still the primary; see Fence.
    var needsProof: Bool
    /// When the commit began that has proven that the server is the primary.
    var provenAt: MonotonicTime
    /// Whether a commit was tried there, and has returned.
    var canCommit: Bool

    var server: ServerIdentity { ServerIdentity(facts) }
}
#endif
