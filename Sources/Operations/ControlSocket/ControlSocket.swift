internal import EventLoop
internal import Logging
internal import Server
internal import System
internal import TokenStore

/// The Unix socket in the data directory through which the command line reaches a running server, in HTTP.
///
/// Only the server's own user may connect (mode 0600), and root. `POST /store/NAME` with a request's JSON is answered with lines of
/// JSON, the last of which is the reply or an error: see `ControlLine`. What `AdministrationEndpoints` answers is answered
/// here as well, and `GET /server` with `ServerFacts`. By hand:
///
///     curl --unix-socket data/control.sock -d '{"id": "9f8a4c1e7b3d60528cd1e5f27a94b306"}' http://localhost/store/get
///     curl --unix-socket data/control.sock http://localhost/readyz
final class ControlSocket: Sendable {
    private let listener: AdministrationListener
    private let administrator: any StoreAdministrator
    private let memory = ControlMemory(limit: ControlSocketAddress.bodyLimit)

    init(_ store: any TokenStore, directory: String) throws(SystemError) {
        listener = AdministrationListener(
            try Listener(unixPath: ControlSocketAddress.path(in: directory), mode: 0o600, owner: nil),
            // What a command has begun is not undone for another one.
            givingUp: .firstByte
        )
        administrator = store.administrator
    }

    /// Opens the socket; logs why if it cannot be opened, as the server serves its clients without it.
    ///
    /// - Returns: Nil when it could not be opened.
    static func open(_ store: any TokenStore, directory: String, _ logger: Logger) -> ControlSocket? {
        do throws(SystemError) {
            return try ControlSocket(store, directory: directory)
        } catch {
            logger.warning(
                """
                \(ControlSocketAddress.path(in: directory)) cannot be opened, commands such as token-cache backup have to wait \
                until the server is stopped: \(error)
                """
            )
            return nil
        }
    }

    /// Accepts on a loop until that is abandoned, and returns when what was asked for is over.
    func accept(
        on loop: EventLoop, _ endpoints: AdministrationEndpoints, _ logger: Logger, leaving reserve: DescriptorReserve
    ) async {
        await listener.accept(on: loop, logger, leaving: reserve) { [administrator, memory] connection in
            await ControlConnection.serve(connection, on: loop, administrator, endpoints, memory)
        }
    }
}
