internal import EventLoop
internal import Foundation
internal import Glibc
package import Logging
internal import Synchronization
internal import TokenStore
internal import UnixSignals

/// The whole server: store, listeners, loops, and their end.
package final class Server: Sendable {
    private let settings: Settings
    private let logger: Logger
    private let store: any TokenStore
    private let listeners: [Listener]
    private let workers: [Worker]
    private let accessLog: AccessLog?
    private let connectionCount = Atomic<Int>(0)

    /// Beyond the limit this many more connections are told so; any further ones are closed at once.
    private static let refusedLimit = 1_000

    /// Opens the store and binds the listeners; nothing is answered before `run`.
    package init(_ settings: Settings, logger: Logger) throws(StartError) {
        self.settings = settings
        self.logger = logger
        // A log's reader that has gone, or a file that may not grow, is an error of that one write, not our end.
        _ = signal(SIGPIPE, SIG_IGN)
        _ = signal(SIGXFSZ, SIG_IGN)
        let descriptorLimit = DescriptorLimit.raise()
        // The store, the loops and the log have some too.
        if descriptorLimit < settings.connectionLimit + 64 {
            logger.warning(
                """
                the limit of open files, \(descriptorLimit), is too low for limits.connections, \
                \(settings.connectionLimit); raise it with ulimit -n or LimitNOFILE=
                """
            )
        }
        do throws(StoreOpenError) {
            // In full, so that messages tell where it is whatever folder the server was started in.
            let directory = URL(filePath: settings.dataDirectory).standardizedFileURL.path
            store = try SQLiteTokenStore(directory: directory)
        } catch {
            throw .store(error)
        }
        var listeners: [Listener] = []
        for address in settings.listen { listeners += try Self.listen(on: address) }
        self.listeners = listeners
        let accessLog = AccessLog(settings.accessLog)
        self.accessLog = accessLog
        let failures = FailureLog(logger)
        do {
            var workers: [Worker] = []
            for _ in 0..<(settings.loops ?? Processors.usable) {
                workers.append(
                    try Worker(settings: settings, store: store, accessLog: accessLog, failures: failures)
                )
            }
            self.workers = workers
        } catch {
            throw .system("\(error)")
        }
    }

    /// A name may stand for several addresses: all of them are listened on.
    private static func listen(on address: ListenAddress) throws(StartError) -> [Listener] {
        let resolved: [SocketAddress]
        do throws(SocketAddress.ResolutionError) {
            resolved = try SocketAddress.resolve(host: address.host, port: address.port)
        } catch {
            throw .resolution(address: "\(address)", reason: error.reason)
        }
        var listeners: [Listener] = []
        for one in resolved {
            do throws(SystemError) {
                listeners.append(try Listener(binding: one))
            } catch {
                throw .listen(address: "\(one)", error.isAddressInUse, error.isPermissionDenied, error.description)
            }
        }
        return listeners
    }

    /// Serves until SIGTERM or SIGINT, answers what has been received, and returns when all is closed.
    ///
    /// - Parameter version: For the log.
    package func run(version: String) async {
        // Before the first request, so that no signal is missed.
        let signals = await UnixSignalsSequence(trapping: .sigterm, .sigint)
        let tasks = workers.enumerated().map { index, worker in
            Thread {
                Thread.current.name = "loop \(index)"
                worker.loop.run()
            }.start()
            return Task(executorPreference: worker.loop) { await self.accept(on: worker) }
        }
        let addresses = listeners.map { "http://\($0.address)" }.joined(separator: " ")
        logger.info(
            """
            token-cache \(version) serves on \(addresses), store \(store.summary), \
            \(workers.count) \(workers.count == 1 ? "loop" : "loops")
            """
        )
        let stopping = Task { await self.stop(by: signals) }
        for task in tasks { await task.value }
        stopping.cancel()
        for worker in workers { worker.loop.stop() }
        store.close()
        accessLog?.close()
        logger.info("token-cache has stopped")
    }

    /// The first signal begins the end, the second one or the timeout hastens it.
    private func stop(by signals: UnixSignalsSequence) async {
        var count = 0
        for await signal in signals {
            count += 1
            if count == 1 {
                logger.debug("\(signal) received, finishing what is under way")
                for worker in workers { worker.loop.beginDraining() }
                let workers = workers
                let (timeout, logger) = (settings.drainTimeout, logger)
                Task {
                    try await Task.sleep(for: timeout)
                    logger.warning("drain_timeout is over, closing what is still open")
                    for worker in workers { worker.loop.abandon() }
                }
            } else {
                logger.warning("\(signal) received again, closing what is still open")
                for worker in workers { worker.loop.abandon() }
            }
        }
    }

    // MARK: - Accepting

    /// Accepts on one loop from all listeners, until draining, and returns when the connections it accepted are over.
    private func accept(on worker: Worker) async {
        await withDiscardingTaskGroup { group in
            for listener in listeners {
                group.addTask(executorPreference: worker.loop) { await self.accept(from: listener, on: worker) }
            }
        }
    }

    private func accept(from listener: Listener, on worker: Worker) async {
        var isPaused = false
        await withDiscardingTaskGroup { group in
            let acceptor: Acceptor
            do throws(SystemError) {
                acceptor = try Acceptor(listener, on: worker.loop)
            } catch {
                logger.critical("\(listener.address) cannot be accepted from: \(error)")
                return
            }
            while true {
                switch await acceptor.next() {
                case .accepted(let descriptor, let peer):
                    if isPaused {
                        isPaused = false
                        logger.info("accepting connections again")
                    }
                    hand(descriptor, from: peer, in: &group)
                case .failed(let error):
                    if !isPaused {
                        isPaused = true
                        logger.warning("no connections are accepted for now: \(error)")
                    }
                    // Connections that end give their descriptors back; until then trying would only spin.
                    await worker.loop.sleep(until: worker.loop.now + Nanoseconds(.milliseconds(100)))
                case .finished:
                    return
                }
            }
        }
    }

    /// Starts a connection's task on the loop that has the fewest.
    private func hand(_ descriptor: Int32, from peer: SocketAddress, in group: inout DiscardingTaskGroup) {
        let open = connectionCount.add(1, ordering: .relaxed).newValue
        guard open <= settings.connectionLimit + Self.refusedLimit else {
            connectionCount.subtract(1, ordering: .relaxed)
            _ = FileDescriptor(owning: descriptor)
            return
        }
        let worker = leastBusyWorker
        worker.connectionCount.add(1, ordering: .relaxed)
        let isRefused = open > settings.connectionLimit
        group.addTask(executorPreference: worker.loop) {
            await worker.serve(descriptor, from: peer, isRefused: isRefused)
            worker.connectionCount.subtract(1, ordering: .relaxed)
            self.connectionCount.subtract(1, ordering: .relaxed)
        }
    }

    private var leastBusyWorker: Worker {
        var least = workers[0]
        for worker in workers.dropFirst()
        where worker.connectionCount.load(ordering: .relaxed) < least.connectionCount.load(ordering: .relaxed) {
            least = worker
        }
        return least
    }
}
