#if PostgreSQL
internal import System

/// The operations on a connection: in groups, each of which is one transaction.
///
/// Belongs to its handle's thread.
final class Pipeline {
    let ready: ReadyConnection
    private(set) var groups: [Group] = []
    /// When the server was last proven to be the primary.
    let proof: Proof
    /// Groups that were answered, and wait for a proof that this server was still the primary then: another one's proof says nothing
    /// of them.
    var held: [Held] = []
    typealias Held = (group: Group, answeredAt: MonotonicTime)
    /// Whether the socket is announced when it can be written to.
    var awaitsWriting = false

    /// Operations that were sent before one Sync.
    struct Group {
        let operations: [Operation]
        fileprivate let parts: [OperationGroup.Part]
        let sentAt: MonotonicTime
        let isFence: Bool
        /// The statement whose answer comes next: the number of its part, and its own number there.
        fileprivate var part = 0
        fileprivate var statement = 0
        /// The first error, and the operations that it came from: none if it came from the commit.
        fileprivate(set) var failure: (operations: Range<Int>, error: PostgresError)?
        /// A warning came with the commit.
        fileprivate(set) var warning: PostgresError?

        /// Whether a statement has changed a row.
        fileprivate(set) var hasWritten = false

        /// The part whose answer comes next; nil if only that of the commit is left.
        fileprivate var current: OperationGroup.Part? { part < parts.count ? parts[part] : nil }

        var isWrite: Bool { operations.contains(where: \.isWrite) }

        /// Whether its commit was acknowledged by standbys.
        var hasProven: Bool { (isFence || hasWritten) && failure == nil && warning == nil }

        var kind: PostgresMetrics.GroupKind { isFence ? .proof : isWrite ? .write : .read }
    }

    init(_ ready: ReadyConnection, _ proof: Proof) {
        (self.ready, self.proof) = (ready, proof)
        proof.note(ready.provenAt)
    }

    var connection: PostgresConnection { ready.connection }

    /// When the oldest group without an answer was sent; nil if there is none.
    var waitingSince: MonotonicTime? { groups.first?.sentAt }

    var hasFence: Bool { groups.contains(where: \.isFence) }

    /// Statements that wait for an answer.
    var statementCount: Int { groups.reduce(0) { $0 + $1.operations.count } }

    /// Sends operations as one transaction; `flush` must follow.
    ///
    /// If this throws, the operations are in `groups` nevertheless, as some may have been sent.
    func send(_ operations: [Operation], at now: MonotonicTime) throws(PostgresError) {
        for operation in operations { operation.hasBeenSent = true }
        let parts = OperationGroup.parts(of: operations)
        groups.append(Group(operations: operations, parts: parts, sentAt: now, isFence: false))
        for part in parts {
            let first = operations[part.operations.lowerBound]
            if let shared = part.shared {
                try shared.send(operations[part.operations], on: connection, first.rows)
            } else {
                try first.send(on: connection)
            }
        }
        try connection.sendSync()
    }

    /// Sends a commit that proves the server to be the primary.
    func sendFence(at now: MonotonicTime) throws(PostgresError) {
        groups.append(Group(operations: [], parts: [], sentAt: now, isFence: true))
        try connection.send(Fence.name, Parameters())
        try connection.sendSync()
    }

    /// Takes what has arrived.
    ///
    /// - Parameter ended: The groups whose transactions have ended are appended, also before an error.
    func receive(_ ended: inout [Group]) throws(PostgresError) {
        try connection.receive()
        while !groups.isEmpty, !connection.isBusy {
            guard let result = connection.nextResult() else {
                // The end of a statement's answer.
                advance()
                continue
            }
            switch result.kind {
            case .rows, .done:
                take(result)
            case .skipped: break
            case .failed(let error):
                if connection.isLost { throw error }
                if groups[0].failure == nil { groups[0].failure = (groups[0].current?.operations ?? 0..<0, error) }
            case .synchronized:
                groups[0].warning = connection.takeWarning()
                ended.append(groups.removeFirst())
                if let last = ended.last, last.hasProven {
                    proof.note(last.sentAt)
                }
            }
        }
        if connection.isLost { throw .connection("PostgreSQL has closed the connection") }
    }

    private func take(_ result: borrowing QueryResult) {
        guard let part = groups[0].current else { return }
        let operations = groups[0].operations[part.operations]
        // A commit that has written something was acknowledged by the standbys; one that has not, did not ask them.
        if let shared = part.shared {
            SharedStatement.take(result, for: operations)
            if shared == .store, result.rowCount > 0 { groups[0].hasWritten = true }
        } else {
            operations.first?.take(result, of: groups[0].statement)
            if case .done = result.kind, result.changedCount > 0 { groups[0].hasWritten = true }
        }
    }

    private func advance() {
        guard let part = groups[0].current else { return }
        let statement = groups[0].statement + 1
        let count = part.shared == nil ? groups[0].operations[part.operations.lowerBound].statementCount : 1
        if statement < count {
            groups[0].statement = statement
        } else {
            (groups[0].part, groups[0].statement) = (groups[0].part + 1, 0)
        }
    }

    /// Whether the group's reads are current: its server was the primary when it answered.
    ///
    /// - Parameters:
    ///   - group: One without a failure.
    ///   - answeredAt: When its answer came.
    func isProven(_ group: borrowing Group, answeredAt: MonotonicTime) -> Bool {
        if !ready.needsProof || group.hasWritten { return true }
        // The difference is 0 if the proof began after the answer.
        return (answeredAt - proof.provenAt).count <= Fence.validity.count
    }
}

/// A place of a handle for a connection: the one that is there, what waits to be sent on it, and the search for another one.
///
/// Belongs to its handle's thread.
final class ConnectionSlot {
    /// Nil while there is no connection.
    var pipeline: Pipeline?
    /// Operations that wait to be sent.
    var queue: [Operation] = []
    /// Whether a connection was requested and has not arrived yet.
    var isOrdered = false
    /// The earliest time of the next search, after the last one has found the same server.
    var searchAgainAt = MonotonicTime(nanoseconds: 0)

    var isIdle: Bool { queue.isEmpty && held.isEmpty && pipeline?.groups.isEmpty != false }

    var held: [Pipeline.Held] { pipeline?.held ?? [] }
}
#endif
