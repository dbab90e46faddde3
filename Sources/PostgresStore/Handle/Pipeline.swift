#if PostgreSQL
import System

/// The operations that were sent on a connection, in groups, each of which is one transaction.
///
/// Belongs to its handle's thread.
final class Pipeline {
    let ready: ReadyConnection
    private(set) var groups: [Group] = []
    let proof: Proof
    /// Groups whose answers wait for a proof that this server was still the primary when they came, in the order of the answers.
    var held: [(group: Group, answeredAt: MonotonicTime)] = []
    /// When something last arrived.
    private var receivedAt = MonotonicTime(nanoseconds: 0)
    /// Whether the handle waits for the socket to become writable.
    var awaitsWriting = false

    /// Operations that were sent before one Sync.
    struct Group {
        let operations: [Operation]
        /// For each statement, the operations that take its answer.
        fileprivate let takers: [Grouping.Part]
        /// How many statements were answered.
        fileprivate var answered = 0
        let sentAt: MonotonicTime
        /// Whether its transaction has ended, and `Statement.confirm` has not been answered yet.
        fileprivate var awaitsConfirmation = false
        /// The first error, of a statement or the commit.
        fileprivate(set) var failure: PostgresError?
        /// Why the commit may be on no standby.
        fileprivate(set) var warning: PostgresError?
        /// Whether a statement has changed a row.
        fileprivate(set) var hasWritten = false

        /// Whether it is only a commit that proves the server to be the primary.
        var isFence: Bool { operations.isEmpty }

        var isWrite: Bool { operations.contains(where: \.isWrite) }

        /// Whether its commit was acknowledged by standbys.
        var hasProven: Bool { (isFence || hasWritten) && failure == nil && warning == nil }

        var kind: PostgresCounts.GroupKind { isFence ? .proof : isWrite ? .write : .read }
    }

    init(_ ready: ReadyConnection, _ proof: Proof) {
        (self.ready, self.proof) = (ready, proof)
    }

    var connection: PostgresConnection { ready.connection }

    /// When the oldest group without an answer was sent; nil if there is none.
    var waitingSince: MonotonicTime? { groups.first?.sentAt }

    /// Since when nothing has arrived although a group waits for its answer; nil if none does.
    var silentSince: MonotonicTime? { waitingSince.map { max($0, receivedAt) } }

    var hasFence: Bool { groups.contains(where: \.isFence) }

    /// How many operations wait for an answer.
    var operationCount: Int { groups.reduce(0) { $0 + $1.operations.count } }

    /// Sends operations as one transaction; the caller must flush the connection.
    ///
    /// Also if this throws, the operations are in `groups`, as some of them may have been sent.
    func send(_ operations: [Operation], at now: MonotonicTime) throws(PostgresError) {
        let parts = Grouping.parts(of: operations)
        let takers = parts.flatMap { part in
            let count = part.shared == nil ? operations[part.operations.lowerBound].statementCount : 1
            return (0..<count).map { statement in
                Grouping.Part(shared: part.shared, operations: part.operations, statement: statement)
            }
        }
        let group = Group(operations: operations, takers: takers, sentAt: now)
        groups.append(group)
        for part in parts {
            if let shared = part.shared {
                try shared.send(operations[part.operations], on: connection)
            } else {
                try operations[part.operations.lowerBound].send(on: connection)
            }
        }
        try end(group)
    }

    /// Ends the transaction, and asks in the same round trip whether a standby has confirmed a write.
    private func end(_ group: Group) throws(PostgresError) {
        try connection.sendSync()
        guard isConfirmed(group) else { return }
        try connection.send(.confirm, [])
        try connection.sendSync()
    }

    private func isConfirmed(_ group: Group) -> Bool { ready.needsProof && group.kind != .read }

    /// Sends a commit that proves the server to be the primary.
    func sendFence(at now: MonotonicTime) throws(PostgresError) {
        let group = Group(operations: [], takers: [], sentAt: now)
        groups.append(group)
        try connection.send(.fence, [])
        try end(group)
    }

    /// Takes the answers that have arrived.
    ///
    /// - Parameter ended: Gets the groups whose transactions have ended, also if this throws.
    func receive(_ ended: inout [Group]) throws(PostgresError) {
        try connection.receive()
        receivedAt = SystemUptime.moment
        while !groups.isEmpty, !connection.isBusy {
            guard let result = connection.nextResult() else {
                // A statement's answer has ended.
                groups[0].answered += 1
                continue
            }
            switch result.kind {
            case .answer: take(result)
            case .skipped: break
            case .failed(let error):
                if connection.isLost { throw error }
                // The transaction itself was committed if only the question has failed whether a standby has it.
                if groups[0].awaitsConfirmation {
                    groups[0].warning = groups[0].warning ?? error
                } else if groups[0].failure == nil {
                    groups[0].failure = error
                }
            case .synchronized:
                groups[0].warning = groups[0].warning ?? connection.takeWarning()
                if !groups[0].awaitsConfirmation, isConfirmed(groups[0]) {
                    groups[0].awaitsConfirmation = true
                    continue
                }
                ended.append(groups.removeFirst())
                if let last = ended.last, last.hasProven { proof.note(last.sentAt) }
            }
        }
        if connection.isLost { throw .connection("PostgreSQL has closed the connection") }
    }

    private func take(_ result: borrowing QueryResult) {
        let group = groups[0]
        if group.awaitsConfirmation, result.integer(0, 0) == 0 {
            let text = "its settings no longer have a standby confirm each commit"
            groups[0].warning = group.warning ?? .unexpected(text)
        }
        // Otherwise it is that of the commit.
        guard group.answered < group.takers.count else { return }
        let taker = group.takers[group.answered]
        let operations = group.operations[taker.operations]
        if let shared = taker.shared {
            SharedStatement.take(result, for: operations)
            if shared == .store, result.rowCount > 0 { groups[0].hasWritten = true }
        } else if let operation = operations.first {
            operation.take(result, of: taker.statement)
            // The standbys are asked to acknowledge a commit only if it has written something.
            if operation.isWrite, result.changedCount > 0 { groups[0].hasWritten = true }
        }
    }

    /// Whether the group's reads are current: its server was the primary when it answered.
    ///
    /// - Parameters:
    ///   - group: One without a failure.
    ///   - answeredAt: When its answer came.
    func isProven(_ group: borrowing Group, answeredAt: MonotonicTime) -> Bool {
        !ready.needsProof || group.hasWritten || proof.counts(forAnswerAt: answeredAt)
    }

    /// Takes the held groups that are proven by now.
    func takeProven() -> [Group] {
        // A proof that counts for one group counts for earlier ones.
        let proven = held.prefix { proof.counts(forAnswerAt: $0.answeredAt) }.map(\.group)
        held.removeFirst(proven.count)
        return proven
    }
}

/// A place of a handle for one connection: the present connection, the operations that wait for it, and the search for another.
///
/// Belongs to its handle's thread.
final class ConnectionSlot {
    /// Nil while there is no connection.
    var pipeline: Pipeline?
    /// Operations that wait to be sent.
    var queue: [Operation] = []
    /// Whether a connection was ordered and has not come yet.
    var isOrdered = false
    /// When to search again at the earliest, as the last search has found the same server.
    var searchAgainAt = MonotonicTime(nanoseconds: 0)

    var isIdle: Bool { queue.isEmpty && !isHolding && pipeline?.groups.isEmpty != false }

    var isHolding: Bool { pipeline?.held.isEmpty == false }
}
#endif
