#if PostgreSQL
internal import System

/// A connection to a primary, in pipeline mode, with all statements prepared.
struct ReadyConnection: Sendable {
    let connection: PostgresConnection
    let server: ServerIdentity
    /// The server for people, such as `PostgreSQL 15.18 at db1:5432 (timeline 1)`.
    let description: String
    /// Whether commits have to prove that the server is still the primary; see Fence.
    let needsProof: Bool
    /// When what has proven it began.
    let provenAt: MonotonicTime
    /// Whether commits return there: one was tried, or the engine's wait for no standby.
    let canCommit: Bool
    /// Whether the writes of a turn share one transaction.
    let sharesCommits: Bool
    /// Whether all nodes of the engine take writes.
    let isOneOfMany: Bool
}

extension Takeover {
    /// - Parameters:
    ///   - ready: The first connection to the present primary.
    ///   - former: The primary before.
    ///   - searched: When the search began.
    ///   - now: When the connection could be used.
    init(
        of ready: ReadyConnection, from former: ServerIdentity, searchedSince searched: MonotonicTime, _ proofs: Proofs,
        at now: MonotonicTime
    ) {
        // The connection may have been ordered after others had found the server.
        let seenAt = max(searched, min(now, ready.needsProof ? proofs.proof(of: ready.server).seenAt : now))
        self.init(
            present: ready.description, former: former, untilSeen: seenAt - searched, untilUsed: now - searched)
    }
}

extension ServerIdentity {
    init(_ facts: HostFacts) {
        self.init(address: facts.address, timeline: facts.timeline ?? 0)
    }
}
#endif
