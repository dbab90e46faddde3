internal import EventLoop
internal import Logging
internal import Server
internal import System

/// The Unix socket in the data directory on which commands reach a running server over HTTP.
///
/// Only the server's user and root may connect (mode 0600). The answer to `POST /store/NAME` with a request in JSON is lines
/// of JSON, the last of which is the reply or an error: see `ControlLine`. `GET /server` returns `ServerFacts`. All paths of
/// `AdministrationEndpoints` work here as well, and only here those that change something. Examples:
///
///     curl --unix-socket data/control.sock -d '{"id": "9f8a4c1e7b3d60528cd1e5f27a94b306"}' http://localhost/store/get
///     curl --unix-socket data/control.sock http://localhost/readyz
final class ControlSocket: Sendable {
    private let listener: AdministrationListener
    private let budget = CommandBudget(limit: ControlSocketAddress.bodyLimit)

    init(directory: String) throws(SystemError) {
        listener = AdministrationListener(
            try Listener(unixPath: ControlSocketAddress.path(in: directory), mode: 0o600, owner: nil),
            // A request that has begun is not interrupted by a new connection.
            evictingUpTo: .firstByte
        )
    }

    /// Opens the socket, and only logs an error, as the server can serve its clients without the socket.
    ///
    /// - Returns: Nil if the socket could not be opened.
    static func open(directory: String, _ logger: Logger) -> ControlSocket? {
        do throws(SystemError) {
            return try ControlSocket(directory: directory)
        } catch {
            logger.warning(
                """
                \(ControlSocketAddress.path(in: directory)) cannot be opened, so that commands such as token-cache backup \
                work only while the server is stopped: \(error)
                """
            )
            return nil
        }
    }

    /// Accepts connections until the loop is abandoned, and returns when all connections have ended.
    ///
    /// - Parameter administrators: Carry out the requests for the store.
    func accept(
        on loop: EventLoop, _ administrators: Administrators, _ endpoints: AdministrationEndpoints, _ acts: ActLog,
        _ logger: Logger, leaving reserve: DescriptorReserve
    ) async {
        await listener.accept(on: loop, logger, leaving: reserve) { [budget] in
            await ControlConnection.serve($0, on: loop, administrators, endpoints, budget, acts)
        }
    }
}
