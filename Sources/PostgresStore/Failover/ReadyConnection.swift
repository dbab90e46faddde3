#if PostgreSQL
internal import System

/// A connection to a primary, in pipeline mode, with all statements prepared.
struct ReadyConnection: Sendable {
    let connection: PostgresConnection
    let server: ServerIdentity
    /// Whether commits have to prove that the server is still the primary; see Fence.
    let needsProof: Bool
    /// When what has proven it began.
    let provenAt: MonotonicTime
    /// Whether it was proven by a commit, and not only by what the other hosts are.
    let canCommit: Bool
    /// Whether the writes of a turn share one transaction.
    let sharesCommits: Bool
}

extension ReadyConnection {
    /// The same, proven by evidence from a moment on.
    func proven(at evidence: MonotonicTime?) -> ReadyConnection {
        guard let evidence else { return self }
        return ReadyConnection(
            connection: connection, server: server, needsProof: needsProof, provenAt: evidence, canCommit: false,
            sharesCommits: sharesCommits)
    }
}

/// Tells one server from another, and from itself before it was promoted.
struct ServerIdentity: Hashable, Sendable {
    /// Host and port.
    let address: String
    /// 0 if the engine has none.
    let timeline: Int64

    init(_ facts: HostFacts) {
        address = facts.address
        timeline = facts.timeline ?? 0
    }
}

/// Shows that a server is still the primary: a commit that its standbys have to acknowledge.
///
/// A primary that was paused or cut off, and in whose place a standby was promoted, would still answer reads from what it has.
/// Its commits do not return, as its standbys follow another server. So what a server has read before such a commit begins
/// is current when the commit returns.
enum Fence {
    static let name = "token_cache_fence"
    /// A message in the write-ahead log that nobody reads: a transaction that has written nothing would not wait for standbys.
    static let sql = "SELECT pg_logical_emit_message(true, 'token-cache', '')"
    /// Reads that were answered later than this after they were sent are held until there is a proof.
    static let lateness = Nanoseconds(.milliseconds(250))
    /// How long a proof counts for reads that are answered in time.
    static let validity = Nanoseconds(.seconds(5))
    /// When the next proof is asked for, so that reads need not wait for one.
    static let renewal = Nanoseconds(.milliseconds(2_500))
}
#endif
