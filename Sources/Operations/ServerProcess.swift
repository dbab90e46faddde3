package import EventLoop
import Logging
package import Server
package import Settings
import TokenService
import TokenStore

/// The server that `token-cache serve` runs: listeners, store, and the administration, which serves operators and their tools on
/// `admin.listen` and the control socket.
package struct ServerProcess: Administration {
    private let server: Server
    private let version: String
    private let listeners: [AdministrationListener]
    /// Nil if it could not be opened; then only commands do not work.
    private let control: AdministrationListener?
    private let history: History
    /// Locked until the process ends, even if the store keeps its data elsewhere.
    private let directory: DataDirectory
    private let logger: Logger

    /// Binds the listeners and opens the store; connections are not accepted before `run`.
    ///
    /// - Parameters:
    ///   - loaded: The settings that `loader` has read.
    ///   - loader: Reads the settings again at a reload.
    ///   - log: Where log messages go.
    ///   - version: This program's version.
    package init(
        _ loaded: SettingsLoader.Loaded, from loader: SettingsLoader, log: LogOutput, version: String
    ) throws(StartError) {
        let settings = loaded.settings
        (logger, self.version) = (log.logger, version)
        let setup = try ProcessSetup(logger: logger)
        let clients = try ClientListeners.open(settings, setup.passedSockets)
        listeners = try AdministrationListener.open(settings.admin.listen)
        let ignored = loader.ignoredVariables
        if !ignored.isEmpty {
            logger.info("not settings, but variables of a Service of Kubernetes: \(ignored.joined(separator: ", "))")
        }
        // A start that is refused over these files leaves no new store and no new key ring behind.
        try Server.examineFiles(settings) { _ in false }
        // After the addresses: starting a second server by mistake fails before it creates a store.
        let departures = Departures()
        let inspector = settings.access.facebookSecretFile.isEmpty ? nil : departures
        let store: any TokenStore
        (store, directory) = try StartError.opening(try StoreSelection.open(settings, logger, inspector))
        if settings.storeURL == nil, let warning = FolderCheck.warning(directory.path) { logger.warning("\(warning)") }
        control = AdministrationListener.control(in: directory.path, logger)
        let server = try Server(loaded, from: loader, log: log, setup, clients, store, departures)
        self.server = server
        // The server holds the store.
        StoreSelection.record(refreshesOf: store, in: server.audit) { [weak server] in
            server?.settingsInForce.audit.isRequired ?? false
        }
        history = History(from: ServerFigures(of: server))
    }

    /// Serves until a signal or the loss of the store's files stops the server, and returns when everything is closed;
    /// fails if it cannot begin.
    ///
    /// - Returns: The exit status.
    package func run() async throws(StartError) -> Int32 {
        try await server.run(version: version, beside: self)
        return server.hasLostStore ? Self.lostStoreStatus : 0
    }

    /// The exit status of a server whose store's files were removed, cut or replaced (EX_IOERR of sysexits(3)).
    private static let lostStoreStatus: Int32 = 74

    // MARK: - Administration

    package var listenerNames: [String] { listeners.map { "http://\($0.name)" } }

    package var warnings: [String] {
        listeners.filter { !$0.isLocal }.map { listener in
            """
            admin.listen: every machine that can reach \(listener.name) sees the server's status and metrics; let only \
            operators' machines reach it, or a proxy that asks for a password or a certificate
            """
        }
    }

    package func run(on loop: EventLoop) async {
        // An unstructured task, because a child of this task would run on its loop.
        let sampling = Task { await history.record(server, version: version) }
        defer { sampling.cancel() }
        let endpoints = AdministrationEndpoints(
            server, warnings: { warnings }, version, history, logger, on: loop)
        await withDiscardingTaskGroup { [logger] group in
            for (listener, isControl) in listeners.map({ ($0, false) }) + (control.map { [($0, true)] } ?? []) {
                group.addTask(executorPreference: loop) {
                    await listener.accept(on: loop, logger) {
                        await AdministrationConnection.serve($0, isControl: isControl, on: loop, endpoints)
                    }
                }
            }
        }
    }
}

/// The version of this program, by semantic versioning (semver.org).
///
/// `test_documents.py` lists the documents that contain it.
package enum Version {
    package static let text = "1.1.0"
}
