import EventLoop
import Logging
import Metrics
import Settings
import Synchronization
import System
import TokenService
import TokenStore

@testable import Server

/// The parts of the server that run in a seed: one loop with its connections, and what they share.
///
/// Unchecked: the simulator has one thread.
final class SimulatedServer: @unchecked Sendable {
    let world: World
    let context: LoopContext
    let budget: BufferBudget
    let connections: ConnectionCount
    private let listener: ClientListener
    private let distributor: ConnectionDistributor
    /// Whether the server has closed all connections and accepts no more.
    private(set) var hasServed = false

    init(_ world: World, _ access: AccessResources, _ logger: Logger) {
        self.world = world
        budget = BufferBudget(limit: world.choices.bufferLimit)
        connections = ConnectionCount(limit: world.choices.connectionLimit ?? 1_000)
        let answers = world.choices.cacheLimit.map { AnswerCache(limit: $0) }
        if let answers { world.store.report(writesTo: ServiceCaches(answers, access.sessions)) }
        do {
            context = try LoopContext(
                settings: world.choices.settings, store: world.store, answers: answers, access: access,
                accessLog: nil, bufferBudget: budget, totalCount: connections,
                failures: RateLimitedLog(logger), logger: logger)
            let address = try SocketAddress.resolve(host: "127.0.0.1", port: 8080)[0]
            // Clients whose header hides them are redirected otherwise.
            listener = ClientListener(
                listener: try Listener(binding: address), requiresProxyProtocol: world.choices.hasProxyHeaders,
                tls: nil, clientAuthentication: .none, isBehindTLS: world.choices.hasProxyHeaders)
        } catch {
            violation("the server does not start: \(error)")
        }
        distributor = ConnectionDistributor([context], connections, logger)
    }

    /// Runs the loop until the scheduler stops it.
    func run() {
        Task(executorPreference: context.loop) { [self] in
            await distributor.accept(from: listener, on: context)
            await context.waitForConnections()
            hasServed = true
        }
        context.loop.run()
    }

    var reportedFailures: UInt64 { context.metrics.storeFailures.total }

    /// Applies the settings again, as a reload does.
    func reload() {
        let (context, settings) = (context, world.choices.settings)
        context.loop.execute { context.apply(settings, accessLog: nil) }
    }

    /// The loop refers to itself through this closure, as it lives as long as the process.
    func breakCycles() {
        context.loop.endOfTurn = {}
    }
}
