internal import EventLoop
internal import Logging
internal import Metrics
internal import Synchronization
internal import System

/// Accepts connections on all loops and assigns each to the loop that has the fewest connections.
///
/// Beyond `limits.connections` that is the loop with the most: there one is most likely idle and can be closed instead.
///
/// Any thread.
final class ConnectionDistributor: Sendable {
    private let workers: [Worker]
    private let count: ConnectionCount
    private let failures: RateLimitedLog
    private let logger: Logger

    /// How many connections a loop accepts before it reads the clock again.
    private static let acceptsPerClockRead = 16
    /// How long to wait before trying to accept again.
    private static let pause = Nanoseconds(.milliseconds(100))

    init(_ workers: [Worker], _ count: ConnectionCount, _ logger: Logger) {
        self.workers = workers
        self.count = count
        self.logger = logger
        failures = RateLimitedLog(logger, .warning)
    }

    /// Accepts on one loop from one listener, until draining.
    ///
    /// - Parameters:
    ///   - listener: The listener.
    ///   - worker: The worker of the calling task's loop.
    func accept(from listener: ClientListener, on worker: Worker) async {
        guard let acceptor = await acceptor(of: listener, on: worker) else { return }
        var (streak, budget) = (0, TurnBudget(began: .now))
        while !worker.loop.isAbandoned {
            switch await acceptor.next() {
            case .accepted(let descriptor, let peer):
                assign(descriptor, from: peer, through: listener, by: worker)
                // Open connections are served, however many new ones arrive.
                streak += 1
                if streak % Self.acceptsPerClockRead == 0 && budget.isSpent {
                    await Task.yield()
                    budget = TurnBudget(began: .now)
                }
            case .failed(let error):
                if worker.loop.isDraining { return }
                await pause("no connections are accepted for now: \(error)", on: worker)
            case .finished:
                return
            }
        }
    }

    /// Begins to accept as soon as the system has enough memory for that; nil if the loop starts draining first.
    private func acceptor(of listener: ClientListener, on worker: Worker) async -> Acceptor? {
        // Tried at least once, because connections that wait when draining begins are still answered.
        repeat {
            do throws(SystemError) {
                return try Acceptor(listener.listener, on: worker.loop)
            } catch {
                await pause("a thread accepts no connections from \(listener.name) for now: \(error)", on: worker)
            }
        } while !worker.loop.isDraining
        return nil
    }

    /// Waits for connections to end and release descriptors; retrying at once would only spin.
    ///
    /// - Parameter message: For the log.
    private func pause(_ message: String, on worker: Worker) async {
        worker.metrics.acceptFailures.add()
        failures.log(message)
        await worker.loop.sleep(until: worker.loop.now + Self.pause)
    }

    private func assign(
        _ descriptor: Int32, from peer: SocketAddress, through listener: ClientListener, by acceptor: Worker
    ) {
        acceptor.metrics.accepted.add()
        guard let exceedsLimit = count.add() else {
            acceptor.metrics.dropped.add()
            _ = FileDescriptor(owning: descriptor)
            return
        }
        let worker = exceedsLimit ? worker(with: >) : worker(with: <)
        worker.expectConnection()
        if worker === acceptor {
            worker.serve(descriptor, from: peer, through: listener, exceedsLimit: exceedsLimit)
        } else {
            worker.loop.execute { worker.serve(descriptor, from: peer, through: listener, exceedsLimit: exceedsLimit) }
        }
    }

    /// The worker with the fewest or the most connections.
    private func worker(with order: (Int, Int) -> Bool) -> Worker {
        var found = workers[0]
        for worker in workers.dropFirst()
        where order(
            worker.connectionCount.load(ordering: .relaxed), found.connectionCount.load(ordering: .relaxed))
        {
            found = worker
        }
        return found
    }
}
