import EventLoop
import Logging
import Metrics
import Synchronization
import System

/// Accepts connections on all loops and assigns each to the loop that has the fewest connections.
///
/// Beyond `limits.connections` it is the loop with the most, which is most likely to have an idle one that can be closed.
///
/// Any thread.
final class ConnectionDistributor: Sendable {
    private let contexts: [LoopContext]
    private let count: ConnectionCount
    private let failures: RateLimitedLog
    /// The task that finds room for the newest connection beyond the limit.
    private let newest = Mutex<Task<Void, Never>?>(nil)

    /// How many connections a loop accepts before it reads the clock again.
    private static let acceptsPerClockRead = 16
    /// After this many rounds in a row without an unanswered connection to close, an idle one is closed.
    private static let vainRounds = 8
    /// After this many rounds, an idle connection is closed in any case: newer connections may take each place that is made.
    private static let mostRounds = 24
    /// How long to wait before trying to accept again.
    private static let pause = Nanoseconds(.milliseconds(100))

    init(_ contexts: [LoopContext], _ count: ConnectionCount, _ logger: Logger) {
        self.contexts = contexts
        self.count = count
        failures = RateLimitedLog(logger, .warning)
    }

    /// Accepts on one loop from one listener, until draining.
    ///
    /// - Parameters:
    ///   - listener: The listener.
    ///   - context: The context of the calling task's loop.
    func accept(from listener: ClientListener, on context: LoopContext) async {
        var acceptor = Acceptor(listener.listener, on: context.loop)
        var (streak, budget) = (0, TurnBudget(began: .now))
        while !context.loop.isAbandoned {
            switch await acceptor.next() {
            case .accepted(let descriptor, let peer):
                assign(descriptor, from: peer, through: listener, by: context)
                // Open connections are served, however many new ones arrive.
                streak += 1
                if streak % Self.acceptsPerClockRead == 0 && budget.isSpent {
                    await Task.yield()
                    budget = TurnBudget(began: .now)
                }
            case .failed(let error):
                if context.loop.isDraining { return }
                // Open connections may end and release descriptors; an attempt at once would only spin.
                context.metrics.acceptFailures.add()
                failures.log("a thread accepts no connections from \(listener.name) for now: \(error)")
                await context.loop.sleep(until: context.loop.now + Self.pause)
            case .finished:
                return
            }
        }
    }

    private func assign(
        _ descriptor: Int32, from peer: SocketAddress, through listener: ClientListener, by acceptor: LoopContext
    ) {
        acceptor.metrics.accepted.add()
        guard let isServed = count.add() else {
            acceptor.metrics.dropped.add()
            _ = FileDescriptor(owning: descriptor)
            return
        }
        let context = isServed ? context(with: <) : context(with: >)
        context.expectConnection()
        if context === acceptor, isServed || context.makeRoom(.expendable) == .found {
            return context.take(descriptor, from: peer, through: listener, isRefused: false)
        }
        if isServed {
            context.loop.execute { context.take(descriptor, from: peer, through: listener, isRefused: false) }
            return
        }
        // One after the other, as one that is let in can itself make room for the next.
        newest.withLock { newest in
            newest = Task(executorPreference: context.loop) { [self, previous = newest] in
                await previous?.value
                let isRefused = await !makeRoom()
                context.take(descriptor, from: peer, through: listener, isRefused: isRefused)
            }
        }
    }

    /// Makes room on any loop for a new connection: first among those that have not been answered, then among idle ones.
    ///
    /// If there are none, those end that wait for the rest of a request or for their client to read. Otherwise a client that was
    /// answered once could keep its place by sending a byte now and then.
    ///
    /// - Returns: Whether the new one is served.
    private func makeRoom() async -> Bool {
        // What is closed in one round makes room in a later one: a handshake that ends early takes some turns to be gone.
        var vainRounds = 0
        for _ in 0..<Self.mostRounds where vainRounds < Self.vainRounds {
            switch await makeRoom(.expendable) {
            case .found: return true
            case .soon: vainRounds = 0
            case .none: vainRounds += 1
            }
        }
        if await makeRoom(.idle) == .found { return true }
        return await makeRoom(.unfinished) == .found
    }

    /// Asks one loop after the other for room.
    private func makeRoom(_ trait: WaitTraits) async -> LoopContext.Room {
        var result = LoopContext.Room.none
        for context in contexts {
            let room = await Task(executorPreference: context.loop) {
                // After the first yield the loop asks for events, up to the 256 that it takes at a time. It has delivered them
                // when the second returns, and no longer counts connections that have ended.
                for _ in 0..<2 { await Task.yield() }
                return context.makeRoom(trait)
            }.value
            switch room {
            case .found: return .found
            case .soon: result = .soon
            case .none: break
            }
        }
        return result
    }

    /// The context of the loop with the fewest or the most connections.
    private func context(with order: (Int, Int) -> Bool) -> LoopContext {
        var found = contexts[0]
        for context in contexts.dropFirst()
        where order(
            context.connectionCount.load(ordering: .relaxed), found.connectionCount.load(ordering: .relaxed))
        {
            found = context
        }
        return found
    }
}
