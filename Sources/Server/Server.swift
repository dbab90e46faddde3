internal import CLinux
internal import EventLoop
internal import Foundation
internal import Glibc
internal import HTTP
internal import Logging
internal import Metrics
package import Settings
internal import Synchronization
internal import TokenService
internal import TokenStore
internal import UnixSignals

/// The whole server: store, listeners, loops, and their end.
package final class Server: Sendable {
    private let settings: Settings
    let logger: Logger
    let store: SQLiteTokenStore
    let entrances: [Entrance]
    let administration: [AdministrationListener]
    let tls: TLSContext?
    let workers: [Worker]
    /// For `administration` and `control`: what clients do on their loops does not keep those waiting who run the server.
    private let administrationLoop: EventLoop
    private let accessLog: LineWriter
    private let reloader: SettingsReloader
    /// Nil when it could not be opened, which only the command line misses.
    private let control: ControlSocket?
    /// Set once, by whoever begins the end.
    private let isDraining = Atomic<Bool>(false)
    /// Why it ends, and who asked; empty before.
    private let reasonOfEnd = Mutex("")
    private let notifier: ServiceNotifier
    /// How often the service manager waits for a sign of life.
    private let watchdogInterval: Duration?
    private let distributor: ConnectionDistributor
    private let reserve: DescriptorReserve
    private let heapMemory: HeapMemory

    /// The longest that nothing is heard of a conversion: while its last pages are written to the disk.
    private static let conversionPause = Duration.seconds(600)
    /// For all to end after the connections have been closed.
    private static let abandonTime = Duration.seconds(5)
    /// For a connection without a request to bring one, when the server is to end.
    ///
    /// A client that asks often has its next request on the way at any moment: it gets an answer, and is told that it was
    /// the last one on that connection.
    private static let idleTimeWhenDraining = Duration.milliseconds(250)

    /// Opens the store and binds the listeners; nothing is answered before `run`.
    ///
    /// - Parameters:
    ///   - settings: What `loader` has read.
    ///   - loader: For reading them again.
    ///   - log: Where messages go.
    package init(_ settings: Settings, from loader: SettingsLoader, log: LogOutput) throws(StartError) {
        self.settings = settings
        let logger = log.logger
        self.logger = logger
        // A log's reader that has gone, or a file that may not grow, is an error of that one write, not our end.
        _ = signal(SIGPIPE, SIG_IGN)
        _ = signal(SIGXFSZ, SIG_IGN)
        heapMemory = HeapMemory()
        CoreDumps.turnOff()
        let descriptorLimit = DescriptorLimit.raise()
        if let warning = DescriptorLimit.warning(forConnections: settings.connectionLimit) {
            logger.warning("\(warning)")
        }
        let service = try ServiceEnvironment.take()
        notifier = ServiceNotifier(service.notificationAddress, logger: logger)
        watchdogInterval = service.watchdogInterval
        let plan = try ListenPlan(settings.listen, service.passedSockets)
        tls = plan.usesTLS ? try Self.tlsContext(settings) : nil
        (entrances, administration) = try Self.listen(plan, settings, tls)
        // After the addresses: who starts a second server by mistake is told so, and no store is made for it.
        store = try StoreAccess.open(settings, logger: logger) { [notifier] event in
            switch event {
            case .converting: notifier.send(.starting(within: Self.conversionPause), .status("converting the store"))
            case .converted: notifier.send(.starting(within: Self.conversionPause), .status("\(event)"))
            default: break
            }
        }
        control = Self.openControlSocket(store, settings, logger)
        let failures = RecurringFault(logger, .error)
        let accessLog = LineWriter(
            try SettingsReloader.destination(settings), failures: RecurringFault(logger, .error))
        self.accessLog = accessLog
        let connectionCount = ConnectionCount(limit: settings.connectionLimit)
        let bufferBudget = BufferBudget(limit: settings.heldLimit)
        do {
            var workers: [Worker] = []
            for _ in 0..<(settings.loops ?? Processors.usable) {
                workers.append(
                    try Worker(
                        settings: settings, store: store,
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
            tls: tls
        )
        reloader = SettingsReloader(settings, from: loader, parts, workers)
        // Last: by now everything is open that stays open.
        reserve = DescriptorReserve(limit: descriptorLimit, acceptors: workers.count * entrances.count)
        distributor = ConnectionDistributor(workers, connectionCount, reserve, logger)
    }

    private static func listen(
        _ plan: ListenPlan, _ settings: Settings, _ tls: TLSContext?
    ) throws(StartError) -> ([Entrance], [AdministrationListener]) {
        do throws(StartError) {
            var entrances: [Entrance] = []
            for (socket, address) in plan.adopted {
                entrances.append(try Entrance.adopt(socket, as: address, tls: tls))
            }
            for address in plan.bound { entrances += try Entrance.open(address, tls: tls) }
            return (entrances, try AdministrationListener.open(settings.admin.listen))
        } catch {
            // What is in use may be so by an entry before it.
            guard error.isAddressInUse,
                let clash = AddressClash.find(listen: plan.bound, administration: settings.admin.listen)
            else { throw error }
            throw .clash(clash)
        }
    }

    private static func openControlSocket(
        _ store: SQLiteTokenStore, _ settings: Settings, _ logger: Logger
    ) -> ControlSocket? {
        let directory = StoreAccess.directory(settings)
        do throws(SystemError) {
            return try ControlSocket(store, directory: directory)
        } catch {
            logger.warning(
                """
                \(ControlSocket.path(in: directory)) cannot be opened, commands such as token-cache backup have to wait \
                until the server is stopped: \(error)
                """
            )
            return nil
        }
    }

    /// The certificates of all `https://` listeners.
    private static func tlsContext(_ settings: Settings) throws(StartError) -> TLSContext {
        guard !settings.tls.certificates.isEmpty else {
            throw .passedSockets("one is for https, and tls.certificate and tls.private_key name no files for it")
        }
        do throws(TLSConfigurationError) {
            return try TLSContext(SettingsReloader.files(settings))
        } catch {
            throw .tls("\(error)")
        }
    }

    /// Serves until SIGTERM or SIGINT, answers what has been received, and returns when all is closed.
    ///
    /// - Parameter version: For the log.
    package func run(version: String) async {
        // Before the first request, so that no signal is missed.
        let signals = await UnixSignalsSequence(trapping: .sigterm, .sigint)
        let hangUps = await UnixSignalsSequence(trapping: .sighup)
        Self.startThread("administration", of: administrationLoop)
        // Before clients' loops and, as it ends after them, for as long as there is anything to ask about.
        let administering = Task(executorPreference: administrationLoop) { await self.administer(version) }
        let tasks = workers.enumerated().map { index, worker in
            Self.startThread("loop \(index)", of: worker.loop)
            return Task(executorPreference: worker.loop) { await self.accept(on: worker) }
        }
        let addresses = entrances.map(\.name).joined(separator: " ")
        if settings.store.isPreloaded { store.preload() }
        logger.info(
            """
            token-cache \(version) serves on \(addresses)\(administrationAddresses), store \(store.summary), \
            \(workers.count) \(workers.count == 1 ? "loop" : "loops")
            """
        )
        for warning in certificateWarnings + exposureWarnings { logger.warning("\(warning)") }
        notifier.send(.ready, .status("serves on \(addresses)"))
        // There, for the threads that tasks share otherwise may all be waiting for a disk.
        let proving = Task(executorPreference: administrationLoop) { await self.giveSignsOfLife() }
        let stopping = Task { await self.stop(by: signals) }
        let reloading = Task { await self.reload(on: hangUps) }
        let watching = Task { await self.reloadOnChange() }
        let givingBack = Task { await self.giveBackMemory() }
        for task in tasks { await task.value }
        // Only now, for each loop gives connections to the others.
        for worker in workers {
            await Task(executorPreference: worker.loop) { await worker.waitForConnections() }.value
        }
        // Until here those who run the server could ask what it waits for.
        administrationLoop.abandon()
        await administering.value
        for task in [stopping, reloading, watching, proving, givingBack] { task.cancel() }
        for loop in loops { loop.stop() }
        store.close()
        accessLog.close()
        logger.info("token-cache has stopped: \(reasonOfEnd.withLock(\.self))")
    }

    private static func startThread(_ name: String, of loop: EventLoop) {
        Thread {
            // Foundation's `Thread.name` has no effect in a thread that is faster than `start` is done.
            unsafe clinux_name_thread(name)
            loop.run()
        }.start()
    }

    private var loops: [EventLoop] { workers.map(\.loop) + [administrationLoop] }

    /// For the log, empty when there are none.
    private var administrationAddresses: String {
        administration.isEmpty
            ? "" : ", administration on " + administration.map { "http://\($0.name)" }.joined(separator: " ")
    }

    private func giveBackMemory() async {
        var heapMemory = heapMemory
        while (try? await Task.sleep(for: Self.heapLookInterval)) != nil { heapMemory.giveBackFree() }
    }

    private static let heapLookInterval = Duration.seconds(10)

    private func giveSignsOfLife() async {
        guard let watchdogInterval else { return }
        await Watchdog(loops: loops, interval: watchdogInterval) { [notifier] in
            notifier.send(.watchdog)
        }.run()
    }

    // MARK: - Reloading

    private func reload(on hangUps: UnixSignalsSequence) async {
        for await _ in hangUps { _ = await reload("SIGHUP received") }
    }

    /// Reads settings and files again, and has those take effect that can.
    ///
    /// - Parameter reason: Who asks, to begin a line of the log with.
    func reload(_ reason: String) async -> ReloadOutcome {
        notifier.send(.reloading(since: .now))
        let outcome = await reloader.reload(reason)
        // The last that a service manager hears of a server that ends is that.
        if !isDraining.load(ordering: .relaxed) { notifier.send(.ready) }
        return outcome
    }

    /// Looks at the files now and then, and once a day makes new keys for session tickets.
    private func reloadOnChange() async {
        guard let tls else { return }
        var lastReload = ContinuousClock.now
        while (try? await Task.sleep(for: Self.fileCheckInterval)) != nil {
            if tls.filesHaveChanged {
                reloader.reloadCertificates("certificate files have changed")
                lastReload = .now
            } else if ContinuousClock.now - lastReload > Self.ticketKeyLifetime {
                reloader.reloadCertificates("a day has passed")
                lastReload = .now
            }
        }
    }

    private static let fileCheckInterval = Duration.seconds(2)
    private static let ticketKeyLifetime = Duration.seconds(86_400)

    /// With what was reloaded.
    var settingsInForce: Settings { reloader.settings }

    /// Which certificates clients refuse, or soon will.
    var certificateWarnings: [String] { reloader.certificateWarnings }

    /// The first signal begins the end, the second one or the timeout hastens it.
    private func stop(by signals: UnixSignalsSequence) async {
        var count = 0
        for await signal in signals {
            count += 1
            if count == 1 {
                // Not hastened where it was asked for before, by what a service manager does ahead of its signal.
                drain("\(signal) received")
            } else {
                logger.warning("\(signal) received again, closing what is still open")
                for worker in workers { worker.loop.abandon() }
            }
        }
    }

    /// Takes no new connections, answers what has been received, and ends; for once and for all.
    ///
    /// - Parameter reason: Who asks, to begin a line of the log with.
    func drain(_ reason: String) {
        guard !isDraining.exchange(true, ordering: .relaxed) else { return }
        reasonOfEnd.withLock { $0 = reason }
        logger.debug("\(reason), finishing what is under way")
        notifier.send(
            .stopping(within: reloader.settings.drainTimeout + Self.abandonTime * 2),
            .status("finishing what is under way")
        )
        for loop in loops { loop.beginDraining() }
        let workers = workers
        let (timeout, logger) = (reloader.settings.drainTimeout, logger)
        Task {
            let idleTime = min(timeout, Self.idleTimeWhenDraining)
            try await Task.sleep(for: idleTime)
            for worker in workers { worker.loop.endIdleWaits() }
            try await Task.sleep(for: timeout - idleTime)
            logger.warning("drain_timeout is over, closing what is still open")
            for worker in workers { worker.loop.abandon() }
            try await Task.sleep(for: Self.abandonTime)
            // A call to the disk that does not return cannot be taken back. What it was to store was not acknowledged.
            logger.critical("the store does not finish, its disk seems to hang; ending without it: \(reason)")
            _exit(EXIT_FAILURE)
        }
    }

    /// Whether it can do what it is there for.
    var readiness: Readiness {
        var reasons: [String] = []
        if isDraining.load(ordering: .relaxed) { reasons.append("the server is stopping") }
        if let fault = store.fault {
            let isRead = if case .read = fault { true } else { false }
            reasons.append("tokens cannot be \(isRead ? "read" : "stored"): \(fault)")
        }
        return Readiness(reasons: reasons)
    }

    var listenerNames: [String] { entrances.map(\.name) }
    var administrationNames: [String] { administration.map { "http://\($0.name)" } }

    /// Where to ask for what is not done over TCP.
    func referral(to path: String) -> String {
        let socket = ControlSocket.path(in: StoreAccess.directory(settings))
        return """
            over TCP anybody on this machine could ask for this; use token-cache \(path.dropFirst()), or curl -X POST \
            --unix-socket \(socket) http://localhost\(path), as a user whom that socket's file lets in
            """
    }

    /// What it tells of itself to commands.
    func facts(version: String) -> ServerFacts {
        ServerFacts(self, version: version, descriptorLimit: DescriptorLimit.current)
    }

    /// What it counts, for Prometheus; not on a loop's thread.
    func metrics(version: String) -> String {
        var report = MetricsReport(
            version: version, workers: workers, store: store, tls: tls, isReady: readiness.isReady
        )
        return report.write()
    }

    // MARK: - Accepting

    /// Accepts on one loop from all listeners for clients, until draining.
    private func accept(on worker: Worker) async {
        await withDiscardingTaskGroup { group in
            for entrance in entrances {
                group.addTask(executorPreference: worker.loop) { [distributor] in
                    await distributor.accept(from: entrance, on: worker)
                }
            }
        }
    }

    /// Answers those who run the server, on a loop of their own and until that is abandoned.
    private func administer(_ version: String) async {
        let endpoints = AdministrationEndpoints(server: self, version: version, on: administrationLoop)
        await withDiscardingTaskGroup { [administrationLoop, logger, reserve] group in
            for listener in administration {
                group.addTask(executorPreference: administrationLoop) {
                    await listener.accept(on: administrationLoop, logger, leaving: reserve) {
                        await AdministrationConnection.serve($0, on: administrationLoop, endpoints)
                    }
                }
            }
            if let control {
                group.addTask(executorPreference: administrationLoop) {
                    await control.accept(on: administrationLoop, endpoints, logger, leaving: reserve)
                }
            }
        }
    }
}
