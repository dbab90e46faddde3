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
    /// When the commit began that has proven it.
    let provenAt: MonotonicTime
    /// Whether commits are known to return there: one was tried.
    let canCommit: Bool
}

extension Takeover {
    /// - Parameters:
    ///   - ready: The first connection to the present primary.
    ///   - former: The primary before.
    ///   - searched: When the search began.
    ///   - now: When the connection was ready for use.
    init(
        of ready: ReadyConnection, from former: ServerIdentity, searchedSince searched: MonotonicTime, _ proofs: Proofs,
        at now: MonotonicTime
    ) {
        // Other connections may have found the server before this one was ordered.
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
