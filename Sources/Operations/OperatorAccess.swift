import EventLoop
import Logging
import Server
import Settings
import TokenStore

/// Serves operators and their tools on `admin.listen` and the control socket.
struct OperatorAccess: Administration {
    private let server: Server
    private let version: String
    private let listeners: [AdministrationListener]
    /// Nil if it could not be opened; then only commands do not work.
    private let control: AdministrationListener?
    private let sampler: HistorySampler
    private let logger: Logger

    init(
        _ server: Server, version: String, _ listeners: [AdministrationListener], _ control: AdministrationListener?,
        _ logger: Logger
    ) {
        self.server = server
        self.version = version
        sampler = HistorySampler(server, version: version)
        self.listeners = listeners
        self.control = control
        self.logger = logger
    }

    var listenerNames: [String] { listeners.map { "http://\($0.name)" } }

    var warnings: [String] {
        listeners.filter { !$0.isLocal }.map { listener in
            """
            admin.listen: every machine that can reach \(listener.name) sees the server's status and metrics; let only \
            operators' machines reach it, or a proxy that asks for a password or a certificate
            """
        }
    }

    func serve(on loop: EventLoop) async {
        // An unstructured task, because a child of this task would run on its loop.
        let sampling = Task { [sampler] in await sampler.run() }
        defer { sampling.cancel() }
        let endpoints = AdministrationEndpoints(
            server, warnings: { warnings }, version, sampler.history, on: loop)
        await withDiscardingTaskGroup { [logger] group in
            for listener in listeners {
                group.addTask(executorPreference: loop) {
                    await listener.accept(on: loop, logger) {
                        await AdministrationConnection.serve($0, on: loop, endpoints)
                    }
                }
            }
            if let control {
                group.addTask(executorPreference: loop) {
                    await control.accept(on: loop, logger) {
                        await ControlConnection.serve($0, on: loop, endpoints, logger)
                    }
                }
            }
        }
    }
}
