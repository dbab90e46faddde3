#if PostgreSQL
internal import Synchronization
internal import System

/// Shows that a server is still the primary: a commit that its standbys have to acknowledge.
///
/// A primary that was paused or cut off, or that nobody has told, and in whose place a standby was promoted, still answers reads
/// from what it has. Its commits do not return, as its standbys follow another server: one that returns proves that no standby had
/// been promoted when it began.
///
/// A proof is a lease. Reads that are answered within `validity` of its beginning count, and no process uses a new primary, for
/// reads or for writes, before it has known it for as long. So whatever the old primary gives until then is what the new one has
/// too. Clocks need not agree, only run at the same speed.
///
/// Where the rule is followed: a handle gives out a group of reads if `Pipeline.isProven`, and otherwise keeps it in that pipeline
/// until its server is proven, or sends it again if the connection is lost. A write proves its server, as it commits. `Dial` waits
/// before it hands over a connection to a server that is new to this process (`Proof.usableFrom`). Administration, which looks for
/// the primary by itself, commits after each call (`PrimaryConnections`). While no standby acknowledges anything, reads count on
/// other evidence: all other hosts were asked, and none of them can be the primary (`PrimarySearch.evidence`). With
/// `store.durability: local` none of this applies, and reads may go back in a failover, as writes may be lost.
enum Fence {
    /// How long a proof counts, and how much longer each failover takes.
    static let validity = Nanoseconds(.milliseconds(750))
    /// When the next proof is asked for, so that reads need not wait for one.
    static let renewal = Nanoseconds(.milliseconds(300))
    /// How long to wait for a proof's answer before sending the next one.
    static let pause = Nanoseconds(.milliseconds(150))

    /// Commits something, and thereby has everything that was committed before on the standby as well.
    ///
    /// - Parameter limit: How long that may take.
    static func prove(_ connection: BlockingConnection, within limit: Duration) throws(PostgresError) {
        do throws(PostgresError) {
            try connection.until(min(connection.deadline, .now + Nanoseconds(limit))).commit(Statement.fence.sql)
        } catch {
            // Otherwise the server's process would go on waiting. What it has committed is a message without a meaning.
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
            // Each promotion makes one; connections keep theirs.
            if proofs.count > 64 { proofs = [:] }
            let proof = Proof(seenAt: .now)
            proofs[server] = proof
            return proof
        }
    }
}

/// When one server was last proven to be the primary: by a commit of ours that its standbys have acknowledged, see Fence, or
/// because all other hosts were asked and none of them can be one.
///
/// Any thread.
final class Proof: Sendable {
    private let proven = Atomic<UInt64>(0)
    private let asked = Atomic<UInt64>(0)
    /// When no other server that was the primary before can give anything that counts any more.
    let usableFrom: MonotonicTime

    /// - Parameter seenAt: When this process learned that the server is a primary.
    init(seenAt: MonotonicTime) {
        usableFrom = seenAt + Fence.validity
    }

    /// When the commit began that has proven it.
    var provenAt: MonotonicTime { MonotonicTime(nanoseconds: proven.load(ordering: .acquiring)) }

    func note(_ moment: MonotonicTime) {
        proven.max(moment.nanoseconds, ordering: .acquiringAndReleasing)
    }

    /// Whether the caller is the one who renews it now: it is soon too old, and nobody else does that already.
    func takesRenewal(at now: MonotonicTime) -> Bool {
        guard (now - provenAt).count > Fence.renewal.count else { return false }
        let before = asked.load(ordering: .relaxed)
        guard (now - MonotonicTime(nanoseconds: before)).count > Fence.pause.count else { return false }
        return asked.compareExchange(expected: before, desired: now.nanoseconds, ordering: .relaxed).exchanged
    }
}

/// Answers of one server that wait for a proof that it was still the primary when they came: a proof of another one says nothing of
/// them.
struct HeldAnswers<Answer> {
    let proof: Proof
    private var held: [(answer: Answer, answeredAt: MonotonicTime)] = []

    init(_ proof: Proof) {
        self.proof = proof
    }

    var isEmpty: Bool { held.isEmpty }

    /// Those that wait.
    var answers: [Answer] { held.map(\.answer) }

    func isProven(answeredAt: MonotonicTime) -> Bool {
        // The difference is 0 if the proof began after the answer.
        (answeredAt - proof.provenAt).count <= Fence.validity.count
    }

    mutating func hold(_ answer: Answer, answeredAt: MonotonicTime) {
        held.append((answer, answeredAt))
    }

    /// Drops those that nobody waits for any more: there may be no proof for hours.
    mutating func drop(where isOver: (Answer) -> Bool) {
        held.removeAll { isOver($0.answer) }
    }

    /// Takes those that are proven by now.
    mutating func takeProven() -> [Answer] {
        let all = held
        held = []
        var proven: [Answer] = []
        for (answer, answeredAt) in all {
            if isProven(answeredAt: answeredAt) {
                proven.append(answer)
            } else {
                held.append((answer, answeredAt))
            }
        }
        return proven
    }
}

/// Tells one server from another, and from itself before it was promoted.
struct ServerIdentity: Hashable, Sendable {
    /// Host and port.
    let address: String
    /// 0 while it follows another server.
    let timeline: Int64
}
#endif
