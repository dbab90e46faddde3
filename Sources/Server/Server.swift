package import EventLoop
internal import Glibc
internal import Logging
package import SQLiteStore
package import Settings
internal import Synchronization
package import System
package import TokenService
internal import TokenStore

/// Serves clients: owns the listeners, the loops and the store, from the start to the orderly end of the process.
///
/// Starting is in this file, reloading in `Server+Reloading.swift`, stopping in `Server+Stopping.swift`.
///
/// Any thread.
package final class Server: Sendable {
    private let settings: Settings
    let logger: Logger
    package let store: SQLiteTokenStore
    /// Shared by all loops; empty for a store that does not see all writes.
    package let answers: AnswerCache
    let listeners: ClientListeners
    package let workers: [Worker]
    /// The administration has a loop of its own: nothing that clients do keeps operators waiting.
    package let administrationLoop: EventLoop
    private let accessLog: LineWriter
    let reloader: SettingsReloader
    let notifier: ServiceNotifier
    /// How often the service manager expects a sign of life; nil when it expects none.
    private let watchdogInterval: Duration?
    private let distributor: ConnectionDistributor
    /// The last descriptors, which connections leave alone.
    package let reserve: DescriptorReserve
    private let heapMemory: HeapMemory
    /// Set once, by whoever begins the stop.
    let isDraining = Atomic<Bool>(false)
    /// Why the server stops, and who asked for it; empty before.
    let reasonOfEnd = Mutex("")

    /// Makes the loops; nothing is answered before `run`.
    ///
    /// - Parameters:
    ///   - settings: What `loader` has read.
    ///   - loader: Reads them again at a reload.
    ///   - log: Where messages go.
    ///   - setup: The process's.
    ///   - listeners: Accepted from when the server runs.
    ///   - store: Closed when the server ends.
    package init(
        _ settings: Settings, from loader: SettingsLoader, log: LogOutput, _ setup: ProcessSetup,
        _ listeners: ClientListeners, _ store: SQLiteTokenStore
    ) throws(StartError) {
        self.settings = settings
        self.listeners = listeners
        self.store = store
        answers = AnswerCache(limit: settings.cacheLimit)
        // Before anything is read or written.
        if store.seesAllWrites { store.report(writesTo: answers) }
        let logger = log.logger
        self.logger = logger
        notifier = setup.notifier
        watchdogInterval = setup.service.watchdogInterval
        heapMemory = setup.heapMemory
        let failures = RateLimitedLog(logger, .error)
        let accessLog = LineWriter(
            try SettingsReloader.destination(settings), failures: RateLimitedLog(logger, .error))
        self.accessLog = accessLog
        let connectionCount = ConnectionCount(limit: settings.connectionLimit)
        let bufferBudget = BufferBudget(limit: settings.heldLimit)
        do {
            var workers: [Worker] = []
            for _ in 0..<(settings.loops ?? Processors.usable) {
                workers.append(
                    try Worker(
                        settings: settings, store: store, answers: store.seesAllWrites ? answers : nil,
                        accessLog: AccessLog(settings.accessLogFormat, to: accessLog), bufferBudget: bufferBudget,
                        totalCount: connectionCount, failures: failures, logger: logger
                    )
                )
            }
            self.workers = workers
            administrationLoop = try EventLoop()
        } catch {
            throw .system("\(error)")
        }
        let parts = SettingsReloader.Parts(
            store: store, log: log, accessLog: accessLog, connectionCount: connectionCount, bufferBudget: bufferBudget,
            tls: listeners.tls
        )
        reloader = SettingsReloader(settings, from: loader, parts, workers)
        // Last, as it counts the descriptors that are open for good.
        reserve = DescriptorReserve(limit: setup.descriptorLimit, acceptors: workers.count * listeners.all.count)
        distributor = ConnectionDistributor(workers, connectionCount, reserve, logger)
    }

    /// Serves until SIGTERM, SIGINT or `drain`, answers what has been received, and returns when everything is closed.
    ///
    /// - Parameters:
    ///   - version: For the log.
    ///   - administration: Runs for as long as the clients' loops, and is the last to stop.
    package func run(version: String, beside administration: some Administration) async {
        // Before the first request, so that no signal is missed.
        let signals = await Signal.caught(.terminate, .interrupt)
        let hangUps = await Signal.caught(.hangUp)
        Self.startThread("administration", of: administrationLoop)
        let administering = Task(executorPreference: administrationLoop) { [administrationLoop] in
            await administration.serve(on: administrationLoop)
        }
        let tasks = workers.enumerated().map { index, worker in
            Self.startThread("loop \(index)", of: worker.loop)
            return Task(executorPreference: worker.loop) { await self.accept(on: worker) }
        }
        announce(version, administration)
        // On the administration's loop, as Swift's shared threads may all be waiting for a disk.
        let proving = Task(executorPreference: administrationLoop) { await self.giveSignsOfLife() }
        let stopping = Task { await self.stop(by: signals) }
        let reloading = Task { await self.reload(on: hangUps) }
        let watching = Task { await self.reloadChangedCertificates() }
        let trimming = Task { await self.giveBackMemory() }
        for task in tasks { await task.value }
        // Only now, as each loop hands connections to the others.
        for worker in workers {
            await Task(executorPreference: worker.loop) { await worker.waitForConnections() }.value
        }
        // Until here operators could ask what the server is waiting for.
        administrationLoop.abandon()
        await administering.value
        for task in [stopping, reloading, watching, proving, trimming] { task.cancel() }
        for loop in loops { loop.stop() }
        store.close()
        accessLog.close()
        logger.info("token-cache has stopped: \(reasonOfEnd.withLock(\.self))")
    }

    private func announce(_ version: String, _ administration: some Administration) {
        let addresses = listenerNames.joined(separator: " ")
        let administrationAddresses = administration.listenerNames.joined(separator: ", ")
        if settings.store.isPreloaded { store.preload() }
        logger.info(
            """
            token-cache \(version) serves on \(addresses)\
            \(administrationAddresses.isEmpty ? "" : ", administration on \(administrationAddresses)"), \
            store \(store.summary), \(workers.count) \(workers.count == 1 ? "loop" : "loops")
            """
        )
        for warning in certificateWarnings + exposureWarnings + administration.warnings {
            logger.warning("\(warning)")
        }
        notifier.send(.ready, .status("serves on \(addresses)"))
    }

    private static func startThread(_ name: String, of loop: EventLoop) {
        NamedThread.start(name) { loop.run() }
    }

    var loops: [EventLoop] { workers.map(\.loop) + [administrationLoop] }

    /// Accepts on one loop from all listeners for clients, until draining.
    private func accept(on worker: Worker) async {
        await withDiscardingTaskGroup { group in
            for listener in listeners.all {
                group.addTask(executorPreference: worker.loop) { [distributor] in
                    await distributor.accept(from: listener, on: worker)
                }
            }
        }
    }

    // MARK: - Periodic work

    private func giveBackMemory() async {
        var heapMemory = heapMemory
        while (try? await Task.sleep(for: Self.heapTrimInterval)) != nil { heapMemory.giveBackFree() }
    }

    private static let heapTrimInterval = Duration.seconds(10)

    private func giveSignsOfLife() async {
        guard let watchdogInterval else { return }
        await Watchdog(loops: loops, interval: watchdogInterval) { [notifier] in
            notifier.send(.watchdog)
        }.run()
    }
}
