internal import EventLoop
internal import Logging
internal import TokenStore

/// The Unix socket in the data directory through which the command line reaches a running server, in HTTP.
///
/// Only the server's own user may connect (mode 0600). `POST /store/NAME` with a request's JSON is answered with lines of
/// JSON, the last of which is the reply or an error: see `ControlLine`. By hand:
///
///     curl --unix-socket data/control.sock -d '{"id": "me"}' http://localhost/store/get
final class ControlSocket: Sendable {
    static let fileName = "control.sock"

    private let listener: Listener
    private let administrator: StoreAdministrator
    private let logger: Logger

    init(_ store: SQLiteTokenStore, directory: String, logger: Logger) throws(SystemError) {
        listener = try Listener(unixPath: Self.path(in: directory), mode: 0o600, owner: nil)
        administrator = StoreAdministrator(store)
        self.logger = logger
    }

    static func path(in directory: String) -> String { directory + "/" + fileName }

    /// Accepts on a loop until that drains, and returns when what was asked for is over.
    func accept(on loop: EventLoop) async {
        await withDiscardingTaskGroup { group in
            let acceptor: Acceptor
            do throws(SystemError) {
                acceptor = try Acceptor(listener, on: loop)
            } catch {
                logger.error("\(listener.name) cannot be accepted from, commands have to wait for a restart: \(error)")
                return
            }
            while !loop.isAbandoned {
                switch await acceptor.next() {
                case .accepted(let descriptor, _):
                    group.addTask(executorPreference: loop) { [administrator] in
                        await ControlConnection.serve(descriptor, on: loop, administrator)
                    }
                case .failed:
                    if loop.isDraining { return }
                    await loop.sleep(until: loop.now + Nanoseconds(.milliseconds(100)))
                case .finished: return
                }
            }
        }
    }
}
