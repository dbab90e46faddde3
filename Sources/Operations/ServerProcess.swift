import EventLoop
import Logging
package import Server
package import Settings
import TokenStore

/// Assembles the server that `token-cache serve` runs: listeners, store, administration.
package struct ServerProcess: Sendable {
    private let server: Server
    private let administration: OperatorAccess
    private let version: String
    /// Locked until the process ends, even if the store keeps its data elsewhere.
    private let directory: DataDirectory

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
        let logger = log.logger
        let setup = try ProcessSetup(logger: logger)
        let clients = try ClientListeners.open(settings, setup.passedSockets)
        let operators = try AdministrationListener.open(settings.admin.listen)
        let ignored = loader.ignoredVariables
        if !ignored.isEmpty {
            logger.info("not settings, but variables of a Service of Kubernetes: \(ignored.joined(separator: ", "))")
        }
        // A start that is refused over these files leaves no new store and no new key ring behind.
        try Server.examineFiles(settings) { _ in false }
        // After the addresses: starting a second server by mistake fails before it creates a store.
        let (store, directory): (any TokenStore, DataDirectory)
        do throws(StoreOpenError) {
            (store, directory) = try StoreSelection.open(settings, logger)
        } catch {
            throw .store(error)
        }
        if settings.storeURL == nil, let warning = FolderCheck.warning(directory.path) { logger.warning("\(warning)") }
        let control = AdministrationListener.control(in: directory.path, logger)
        server = try Server(loaded, from: loader, log: log, setup, clients, store)
        administration = OperatorAccess(server, version: version, operators, control, logger)
        self.version = version
        self.directory = directory
    }

    /// Serves until a signal or the loss of the store's files stops the server, and returns when everything is closed;
    /// fails if it cannot begin.
    ///
    /// - Returns: The exit status.
    package func run() async throws(StartError) -> Int32 {
        try await server.run(version: version, beside: administration)
        return server.hasLostStore ? Self.lostStoreStatus : 0
    }

    /// The exit status of a server whose store's files were removed, cut or replaced (EX_IOERR of sysexits(3)).
    private static let lostStoreStatus: Int32 = 74
}

/// The version of this program, by semantic versioning (semver.org).
///
/// `test_documents.py` lists the documents that contain it.
package enum Version {
    package static let text = "1.1.0"
}
