package import Audit
import Dispatch
import EventLoop
import Glibc
import Logging
package import Settings
import Synchronization
import System
package import TokenService
package import TokenStore

/// Serves clients: owns the listeners, the loops and the store, from the start to the orderly end of the process.
///
/// Starting is in this file, stopping in `Server+Signals.swift`, and reloading in `Reloading`.
///
/// Any thread.
package final class Server: Sendable {
    let log: LogOutput
    let logger: Logger
    package let store: any TokenStore
    /// Shared by all loops; empty for a store that does not see all writes.
    package let answers: AnswerCache
    /// Shared by all loops.
    package let access: AccessResources
    let listeners: ClientListeners
    package let contexts: [LoopContext]
    /// The administration has its own loop, so that operators get answers however busy the clients' loops are.
    let administrationLoop: EventLoop
    let accessLog: LineWriter
    let bufferBudget: BufferBudget
    /// Nil without `audit.file`.
    package let audit: AuditLog?
    let loader: SettingsLoader
    let inForce: Mutex<Settings>
    let sources: Mutex<SettingsSources>
    let reloadRecord = Mutex(LastReload(successTime: LoopContext.unixTime))
    /// The most recently requested reload; they run one at a time, in the order of their requests.
    let lastReloadTask = Mutex<Task<Void, Never>?>(nil)
    let reloadQueue = DispatchQueue(label: "settings and certificates")
    /// Where the audit log is kept up, reopened and closed, all of which wait for its disk.
    let auditQueue = DispatchQueue(label: "audit log upkeep")
    /// What was wrong with the key ring's file when the server last looked at it; nil if nothing was.
    let keyRingFault = Mutex<KeyRingError?>(nil)
    let keyRingQueue = DispatchQueue(label: "key ring")
    let latestDiskSpace: Mutex<FileSystem.Space?>
    let notifier: ServiceNotifier
    /// How often the service manager expects a watchdog message; nil when it expects none.
    let watchdogInterval: Duration?
    private let distributor: ConnectionDistributor
    /// The connections of all loops.
    let connectionCount: ConnectionCount
    let heapMemory: HeapMemory
    /// Set once, when the stop begins.
    let isDraining = Atomic<Bool>(false)
    /// How many signals that stop the server have arrived.
    let stopSignals = Atomic<Int>(0)
    /// Why the server stops, such as `SIGTERM received`; empty before.
    let stopReason = Mutex("")

    /// Creates the loops; connections are not accepted before `run`.
    ///
    /// - Parameters:
    ///   - loaded: The settings that `loader` has read.
    ///   - loader: Reads the settings again at a reload.
    ///   - log: Where log messages go.
    ///   - setup: The prepared process.
    ///   - listeners: The clients' listeners.
    ///   - store: Closed when the server ends.
    ///   - departures: Is shown the tokens that the store's walk opens.
    package init(
        _ loaded: SettingsLoader.Loaded, from loader: SettingsLoader, log: LogOutput, _ setup: ProcessSetup,
        _ listeners: ClientListeners, _ store: any TokenStore, _ departures: Departures = Departures()
    ) throws(StartError) {
        let settings = loaded.settings
        self.loader = loader
        inForce = Mutex(settings)
        var sources = SettingsSources()
        sources.update(from: loaded, inForce: settings)
        self.sources = Mutex(sources)
        self.log = log
        self.listeners = listeners
        self.store = store
        answers = AnswerCache(limit: settings.cacheLimit)
        let logger = log.logger
        self.logger = logger
        audit = try Self.openAuditLog(settings, logger)
        let access = try AccessResources(settings, seesEnds: store.seesAllWrites, audit: audit, departures) {
            logger.warning("\($0)")
        }
        self.access = access
        access.reportUnusedKeys(logger)
        // Before anything is read or written.
        if store.seesAllWrites { store.report(writesTo: ServiceCaches(answers, access.sessions)) }
        latestDiskSpace = Mutex(FileSystem(of: settings.dataDirectoryPath).space)
        notifier = setup.notifier
        watchdogInterval = setup.service.watchdogInterval
        heapMemory = setup.heapMemory
        let failures = RateLimitedLog(logger)
        let accessLog = LineWriter(try Self.destination(settings), failures: RateLimitedLog(logger))
        self.accessLog = accessLog
        let connectionCount = ConnectionCount(limit: settings.connectionLimit)
        self.connectionCount = connectionCount
        let loops = Processors.usable
        let bufferBudget = BufferBudget(limit: settings.bufferLimit, loops: loops)
        self.bufferBudget = bufferBudget
        do {
            var contexts: [LoopContext] = []
            for _ in 0..<loops {
                contexts.append(
                    try LoopContext(
                        settings: settings, store: store, answers: store.seesAllWrites ? answers : nil, access: access,
                        accessLog: AccessLog(settings, listeners: listeners.all.map(\.name), to: accessLog),
                        bufferBudget: bufferBudget, totalCount: connectionCount, failures: failures, logger: logger
                    )
                )
            }
            self.contexts = contexts
            administrationLoop = try EventLoop()
            // Last, when all descriptors that stay open are open.
            // Two loops have connections to a database.
            let connectionsToStore = settings.store.url.isEmpty ? 0 : 2 * settings.store.connections
            try connectionCount.lookAtDescriptors(awaited: contexts.count * listeners.all.count + connectionsToStore)
        } catch {
            throw .setup(error)
        }
        distributor = ConnectionDistributor(contexts, connectionCount, logger)
        if let warning = connectionCount.warning { logger.warning("\(warning)") }
    }

    /// Serves until SIGTERM, SIGINT or `drain`, answers the requests received by then, and returns when all is closed.
    ///
    /// - Parameters:
    ///   - version: The program's version, for the log.
    ///   - administration: Runs at least as long as the clients' loops, and stops last.
    package func run(version: String, beside administration: some Administration) async throws(StartError) {
        // Before Dispatch needs threads of its own: if it gets none, it waits for ever and says nothing.
        NamedThread.startOrExit("administration") { [administrationLoop] in administrationLoop.run() }
        for (index, context) in contexts.enumerated() {
            NamedThread.startOrExit("loop \(index)") { context.loop.run() }
        }
        // Before the first request, so that no signal is missed.
        await Signal.handle(.terminate, .interrupt, .hangUp, .reopenLogs) { [self] in handle($0) }
        let administrationTask = Task(executorPreference: administrationLoop) { [administrationLoop] in
            await administration.run(on: administrationLoop)
        }
        let acceptingTasks = contexts.map { context in
            Task(executorPreference: context.loop) { await self.accept(on: context) }
        }
        announce(version, administration)
        let periodicTasks = [
            // On the administration's loop, as all of Swift's shared threads may be blocked by a slow disk.
            Task(executorPreference: administrationLoop) { await self.notifyWatchdog() },
            Task { await self.reloadChangedFiles() },
            Task { await self.trimHeap() },
            Task { await self.keepUpAuditLog() },
            Task { await self.watchStore() },
            Task { await self.watchDiskSpace() },
        ]
        let departures = Task { await self.carryOutDepartures() }
        for task in acceptingTasks { await task.value }
        // Only now, as each loop assigns connections to the others.
        for context in contexts {
            await Task(executorPreference: context.loop) { await context.waitForConnections() }.value
        }
        // Up to this point operators can ask what the server is waiting for.
        administrationLoop.abandon()
        await administrationTask.value
        for task in periodicTasks + [departures] { task.cancel() }
        // Otherwise a change since the last check would appear in neither log, as the next start takes the files as they are.
        await access.reloadChangedFiles(logger, [.apiKeys])
        // If a disk hangs here until the process ends, the audit log has no last line, as after a crash.
        await DispatchQueue(label: "last writes").run { [store] in store.finishWrites() }
        // Records their outcomes, also those of clients that have left.
        for context in contexts { await Task(executorPreference: context.loop) { context.loop.endOfTurn() }.value }
        // It may have an event of what it has removed.
        await departures.value
        if let audit { await auditQueue.run { audit.close() } }
        accessLog.close()
        // Last, as it gives up the lock of the data folder: a process that waits for that opens the audit log too.
        store.close()
        for loop in loops { loop.stop() }
        logger.info("token-cache has stopped: \(stopReason.withLock(\.self))")
    }

    private func announce(_ version: String, _ administration: some Administration) {
        let addresses = listenerNames.joined(separator: " ")
        let administrationAddresses = administration.listenerNames.joined(separator: ", ")
        store.preload()
        logger.info(
            """
            token-cache \(version) serves on \(addresses)\
            \(administrationAddresses.isEmpty ? "" : ", administration on \(administrationAddresses)"), \
            store \(store.summary), \(contexts.count) \(contexts.count == 1 ? "loop" : "loops")
            """
        )
        if let authorities = tls?.clientAuthorities { logger.info("\(authorities.trust)") }
        for warning in certificateWarnings + settingsWarnings + administration.warnings {
            logger.warning("\(warning)")
        }
        // Even if the server is not ready for clients: it recovers by itself, and must not be restarted.
        if !isStopping { notifier.send(.ready) }
    }

    /// The most connections that are served at a time.
    package var connectionLimit: Int { connectionCount.limit }

    var loops: [EventLoop] { contexts.map(\.loop) + [administrationLoop] }

    /// Accepts on one loop from all listeners for clients, until draining.
    private func accept(on context: LoopContext) async {
        await withDiscardingTaskGroup { group in
            for listener in listeners.all {
                group.addTask(executorPreference: context.loop) { [distributor] in
                    await distributor.accept(from: listener, on: context)
                }
            }
        }
    }
}
