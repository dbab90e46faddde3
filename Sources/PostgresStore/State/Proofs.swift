#if PostgreSQL
internal import Synchronization
internal import System

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
    private let usable: Atomic<UInt64>
    /// When this process learned that the server is a primary.
    let seenAt: MonotonicTime

    /// - Parameter seenAt: Not before the server has become a primary.
    init(seenAt: MonotonicTime) {
        self.seenAt = seenAt
        usable = Atomic((seenAt + Fence.validity).nanoseconds)
    }

    /// When no other server that was the primary before can give anything that counts any more.
    var usableFrom: MonotonicTime { MonotonicTime(nanoseconds: usable.load(ordering: .acquiring)) }

    /// The server has been the primary for long.
    func allowUse() {
        usable.store(0, ordering: .releasing)
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
#endif
