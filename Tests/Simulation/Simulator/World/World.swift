import CSimulatedKernel
import EventLoop
import Glibc
import HTTP
import Logging
import Settings
import System
import TokenService
import TokenStore

@testable import Server

/// All that one seed consists of: the kernel, the clients, the store, the operator, and the server among them.
final class World: @unchecked Sendable {
    // Unchecked: the simulator has one thread.

    let random: Randomness
    let choices: Choices
    let kernel: Kernel
    let ledger: Ledger
    private(set) var clients: [SimulatedClient] = []
    private(set) lazy var store = SimulatedStore(self)
    private lazy var scheduler = Scheduler(self)
    private var runningServer: SimulatedServer?

    /// Whether the server was told to accept no more, to wait for no further requests, and to end every wait.
    var isDraining = false
    var hasEndedIdleWaits = false
    var isAbandoned = false
    /// Connections that were accepted, so that the server counts them.
    private(set) var accepted: [SimulatedClient] = []
    /// Answers of failure that nothing in the ledger explains: the server must have reported a failure of the store for each.
    private var unexplainedFailures: UInt64 = 0

    /// When a connection beyond the limit was last accepted; idle ones make room for it.
    private var lastExcessAt: UInt64 = 0

    init(seed: UInt64) {
        random = Randomness(seed: seed)
        choices = Choices(random)
        var clock = VirtualClock()
        if choices.isSlow { clock.longestStep = 3_000_000 }
        kernel = Kernel(random, clock)
        ledger = Ledger(ids: choices.ids)
        for id in 0..<choices.ids where random.happens(oneIn: 2) {
            ledger.commit(ledger.addWrite(id: id, length: 10), deadline: .max)
        }
        let maker = RequestMaker(random: random, ledger: ledger, choices: choices)
        for number in 0..<choices.clients {
            let habits = Habits(random, choices)
            var requests: [ClientRequest] = []
            for _ in 0..<habits.requests {
                requests.append(maker.make())
                // What follows could be read as a part of it.
                if case .malformed = requests[requests.count - 1].purpose { break }
            }
            let header =
                choices.hasProxyHeaders ? ProxyHeader(random, mayBeMalformed: choices.hasMalformedRequests) : nil
            clients.append(SimulatedClient(number, habits, header, requests, self))
        }
    }

    /// Runs the seed to its end.
    func run(_ access: AccessResources, _ logger: Logger) {
        currentKernel = kernel
        kernel.surroundings = scheduler
        let leftovers = serve(access, logger)
        leftovers.check(kernel)
        currentKernel = nil
    }

    private func serve(_ access: AccessResources, _ logger: Logger) -> Leftovers {
        let server = SimulatedServer(self, access, logger)
        runningServer = server
        server.run()
        let leftovers = Leftovers(server)
        server.breakCycles()
        runningServer = nil
        store.forgetHandle()
        return leftovers
    }

    var server: SimulatedServer {
        guard let runningServer else { preconditionFailure("the server runs while anything happens") }
        return runningServer
    }

    // MARK: - For all that takes part

    func note(_ event: StaticString, _ subject: Int, _ number: Int = 0) {
        ledger.advance()
        guard isTraced else { return }
        print("\(kernel.clock.now / 1_000) us, moment \(ledger.moment): \(subject): \(event) \(number)")
    }

    func interleave() { scheduler.interleave() }

    /// Calls something of the loop that any thread may call, as another thread.
    func onAnotherThread(_ body: () -> Void) {
        simulation_pretend_another_thread(1)
        body()
        simulation_pretend_another_thread(0)
    }

    func connect(_ client: SimulatedClient) -> Bool {
        guard let listener = kernel.listener, !server.hasServed else {
            client.isRefused = true
            return true
        }
        listener.queue.append(client)
        kernel.noteChange(of: listener)
        return true
    }

    func accept(_ client: SimulatedClient) {
        note("is accepted", client.number)
        accepted.append(client)
        client.checker.isAccepted()
        let open = accepted.count { $0.socket?.isClosed == false }
        client.checker.exceedsLimit = open > choices.connectionLimit ?? .max
        if client.checker.exceedsLimit { lastExcessAt = kernel.clock.now }
    }

    /// Whether a connection beyond the limit was accepted since a time, or still waits for its first answer.
    func hasExcess(since time: UInt64) -> Bool {
        let waits = accepted.contains { client in
            client.checker.exceedsLimit && client.checker.answered == 0 && client.socket?.isClosed == false
        }
        return waits || lastExcessAt >= time
    }

    /// Whether the server has reported a failure of the store that no answer has shown so far.
    var hasUnexplainedReport: Bool { server.reportedFailures > unexplainedFailures }

    /// Checks that there can be failures, and that the server has reported as many as clients were told of.
    func explainFailure(else fail: () -> Never) {
        if !choices.storeFails && choices.storeTime == nil && !choices.hasFewBuffers { fail() }
        unexplainedFailures += 1
        if server.reportedFailures < unexplainedFailures { fail() }
    }
}

extension World {
    /// Checks what must be so whenever nothing can happen except that time passes.
    func checkAtRest() {
        for client in accepted { client.checker.checkAtRest() }
        guard accepted.allSatisfy({ $0.checker.isIdle && $0.habits.reading != .never }) else { return }
        let bytes = server.budget.takenBytes
        if bytes != 0 { violation("\(bytes) bytes of buffers are counted although all connections are idle") }
    }
}
