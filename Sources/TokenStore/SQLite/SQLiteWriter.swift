internal import Dispatch
internal import Foundation
internal import Synchronization

/// A write whose task waits for the outcome.
struct PendingWrite: Sendable {
    let write: Write
    let continuation: CheckedContinuation<Result<Void, StoreError>, Never>
}

/// What one session gathered in one turn.
struct WriteBatch: Sendable {
    let writes: [PendingWrite]
    let deliver: @Sendable (@escaping @Sendable () -> Void) -> Void
}

/// The one thread that commits.
///
/// It takes all batches that wait and commits them in one transaction: while a commit is on its way to the disk the next
/// group gathers, so the group grows with the load and a lone write never waits for company.
final class SQLiteWriter: Sendable {
    private struct Queue {
        var batches: [WriteBatch] = []
        var isClosed = false
    }

    /// How many commits there were, each counted before anybody is told of it.
    let commitCount = Atomic<UInt64>(0)
    private let queue = Mutex(Queue())
    /// Signalled when the queue stops being empty or is closed.
    private let available = DispatchSemaphore(value: 0)
    private let finished = DispatchSemaphore(value: 0)

    init(_ connection: SQLiteConnection) throws(SQLiteError) {
        let committer = try Committer(connection)
        // The committer is made here, so that its errors stop the start, and from now on used by its thread alone.
        let handedOver = HandedOver(committer)
        Thread { [self] in
            Thread.current.name = "writer"
            run(handedOver.take())
            // The committer has gone, and the connection with it.
            finished.signal()
        }.start()
    }

    /// Queues a batch.
    ///
    /// Its outcome comes through its `deliver`.
    func submit(_ batch: WriteBatch) {
        let (isFirst, isClosed) = queue.withLock { queue in
            guard !queue.isClosed else { return (false, true) }
            queue.batches.append(batch)
            return (queue.batches.count == 1, false)
        }
        if isClosed {
            Self.finish(batch, batch.writes.map { _ in .failure(.closed) })
        } else if isFirst {
            available.signal()
        }
    }

    /// Commits what is queued, then closes the database.
    ///
    /// Returns when that is done.
    func close() {
        let wasOpen = queue.withLock { queue in
            defer { queue.isClosed = true }
            return !queue.isClosed
        }
        guard wasOpen else { return }
        available.signal()
        finished.wait()
    }

    private func run(_ committer: consuming Committer) {
        while true {
            available.wait()
            let (batches, isClosed) = queue.withLock { queue in
                defer { queue.batches = [] }
                return (queue.batches, queue.isClosed)
            }
            if !batches.isEmpty {
                let outcomes = committer.commit(batches.flatMap { $0.writes.map(\.write) })
                commitCount.add(1, ordering: .releasing)
                var start = 0
                for batch in batches {
                    Self.finish(batch, Array(outcomes[start..<(start + batch.writes.count)]))
                    start += batch.writes.count
                }
            }
            if isClosed {
                committer.checkpoint()
                return
            }
        }
    }

    private static func finish(_ batch: WriteBatch, _ outcomes: [Result<Void, StoreError>]) {
        batch.deliver {
            for (write, outcome) in zip(batch.writes, outcomes) { write.continuation.resume(returning: outcome) }
        }
    }
}

/// A value that one thread makes and another one takes over.
///
/// Unchecked: only the taker touches the value once it is in here.
private final class HandedOver<Value>: @unchecked Sendable {
    private var value: Value?

    init(_ value: Value) {
        self.value = value
    }

    /// Once.
    func take() -> Value {
        guard let taken = value.take() else { preconditionFailure("a value is handed over once") }
        return taken
    }
}
