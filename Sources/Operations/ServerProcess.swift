internal import EventLoop
package import Server
package import Settings
internal import TokenStore

/// A whole server, put together from its parts: what `token-cache serve` runs.
package struct ServerProcess: Sendable {
    private let server: Server
    private let administration: OperatorAccess
    private let version: String
    /// Locked until the process ends, whatever the store keeps there.
    private let directory: DataDirectory

    /// The longest time that a conversion of the store says nothing: while its last pages are written to the disk.
    private static let conversionPause = Duration.seconds(600)

    /// Binds the listeners and opens the store; nothing is answered before `run`.
    ///
    /// - Parameters:
    ///   - settings: What `loader` has read.
    ///   - loader: Reads them again at a reload.
    ///   - log: Where messages go.
    ///   - version: This program's.
    package init(
        _ settings: Settings, from loader: SettingsLoader, log: LogOutput, version: String
    ) throws(StartError) {
        let logger = log.logger
        let setup = try ProcessSetup(connectionLimit: settings.connectionLimit, logger: logger)
        let (clients, operators) = try ClientListeners.open(settings, setup.passedSockets) { () throws(StartError) in
            try AdministrationListener.open(settings.admin.listen)
        }
        // After the addresses: somebody who starts a second server by mistake is told so, and no store is made for it.
        let (store, directory) = try StoreSelection.open(settings, logger: logger) {
            [notifier = setup.notifier] event in
            switch event {
            case .converting: notifier.send(.starting(within: Self.conversionPause), .status("converting the store"))
            case .converted: notifier.send(.starting(within: Self.conversionPause), .status("\(event)"))
            default: break
            }
        }
        let control = ControlSocket.open(store, directory: directory.path, logger)
        server = try Server(settings, from: loader, log: log, setup, clients, store)
        administration = OperatorAccess(server, version: version, operators, control, logger)
        self.version = version
        self.directory = directory
    }

    /// Serves until the process is told to end, and returns when everything is closed.
    package func run() async {
        await server.run(version: version, beside: administration)
    }
}
