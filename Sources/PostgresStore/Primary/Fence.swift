#if PostgreSQL
import Synchronization
import System

/// Proves that a server is still the primary: by a commit that its standbys have to acknowledge.
///
/// When a standby is promoted, the former primary may have been paused or cut off, or simply not know of it: it still answers reads
/// with the data that it has. But its commits do not return, as its standbys follow another server. So a commit that returns proves
/// that no standby had been promoted when it began.
///
/// If not all standbys have to confirm, the former primary may have kept some of them. But at least half do (`DurabilityRules`), and
/// the one that was promoted follows neither, so the others are too few to confirm commits of both: a commit that returns on the new
/// primary shows that those of the former one no longer do.
///
/// A proof is a lease. Reads count that are answered within `validity` of its beginning, and no process uses a new primary, for
/// reads or for writes, before it has known for as long that its commits return. So what the former primary answers until then is what the new one has
/// as well. Clocks need not agree, only run at the same speed: all moments here are `SystemUptime.moment`, as a machine that was
/// suspended must not take an old proof for a new one.
///
/// Where the rule is followed: a handle gives out the answers of a group of reads if `Pipeline.isProven`. Otherwise it keeps them
/// in the pipeline until the server is proven, or sends the reads again if the connection is lost. A write proves its server, as it
/// commits. `Dial` waits before it hands over a connection to a server that is new to this process (`Proof.usableFrom`).
/// Administration, which looks for the primary by itself, commits after each call (`PrimaryConnections`). While no standby
/// acknowledges anything, reads count on other evidence: all other hosts have answered that they are standbys
/// (`PrimarySearch.evidence`). If this process knows a later primary, only a commit counts. With `store.durability: local` none of
/// this applies: in a failover, reads may return older tokens than before, and writes may be lost.
enum Fence {
    /// How long a proof counts.
    ///
    /// Each failover takes longer by this.
    static let validity = Nanoseconds(.milliseconds(750))
    /// The age of a proof at which the next one is asked for, so that reads need not wait for it.
    static let renewal = Nanoseconds(.milliseconds(300))
    /// How long to wait for the answer to a proof before asking for another one.
    static let pause = Nanoseconds(.milliseconds(150))

    /// Commits something, and waits until the standby has it and all that was committed before.
    ///
    /// - Parameter limit: How long that may take.
    static func prove(_ connection: BlockingConnection, within limit: Duration) throws(PostgresError) {
        do {
            try connection.until(min(connection.deadline, .now + limit)).commit(Statement.fence.sql)
        } catch {
            // Otherwise the server's process would go on waiting. Nothing is lost: the message that it commits has no meaning.
            if case .timedOut = error { connection.postgres.cancelSoon() }
            throw error
        }
    }
}

/// When each server was last proven to be the primary; shared by the handles of a store.
///
/// Any thread.
final class Proofs: Sendable {
    private let proofs = Mutex<[ServerIdentity: Proof]>([:])

    func proof(of server: ServerIdentity) -> Proof {
        proofs.withLock { proofs in
            if let proof = proofs[server] { return proof }
            // Each promotion adds one.
            let proof = Proof(seenAt: SystemUptime.moment)
            proofs[server] = proof
            return proof
        }
    }
}

/// When one server was last proven to be the primary: by one of our commits that its standbys have acknowledged, or because all
/// other hosts have answered that they are standbys; see Fence.
///
/// Any thread.
final class Proof: Sendable {
    private let proven = Atomic<UInt64>(0)
    private let asked = Atomic<UInt64>(0)
    /// From when on no answer of the former primary counts, so that this server may be used.
    let usableFrom: MonotonicTime

    /// - Parameter seenAt: When this process learned that the server is a primary whose commits return.
    init(seenAt: MonotonicTime) {
        usableFrom = seenAt + Fence.validity
    }

    /// When the commit of the last proof began.
    var provenAt: MonotonicTime { MonotonicTime(nanoseconds: proven.load(ordering: .acquiring)) }

    /// Whether an answer of this server may be given out, as the server was proven to be the primary recently enough before it.
    ///
    /// A proof of another server does not count.
    func counts(forAnswerAt moment: MonotonicTime) -> Bool {
        // This difference of unsigned times is 0 if the proof began after the answer.
        moment - provenAt <= Fence.validity
    }

    func note(_ moment: MonotonicTime) {
        proven.max(moment.nanoseconds, ordering: .acquiringAndReleasing)
    }

    /// Returns whether the caller must renew the proof now: it is about to become too old, and no other handle is renewing it.
    func takesRenewal(at now: MonotonicTime) -> Bool {
        guard now - provenAt > Fence.renewal else { return false }
        let before = asked.load(ordering: .relaxed)
        guard now - MonotonicTime(nanoseconds: before) > Fence.pause else { return false }
        return asked.compareExchange(expected: before, desired: now.nanoseconds, ordering: .relaxed).exchanged
    }
}

/// Tells one server from another, and from itself before it was promoted.
struct ServerIdentity: Hashable, Sendable {
    /// Host and port.
    let address: String
    /// 0 for a standby.
    let timeline: Int64
}

extension ServerIdentity {
    init(_ facts: HostFacts) {
        self.init(address: facts.address, timeline: facts.timeline ?? 0)
    }
}
#endif
