import EventLoop
import Glibc
import Logging
import Server
import Settings
import System

/// A listener of the administration, separate from the clients' listeners, and its open connections.
///
/// Their number is small. When the limit is reached, a new connection evicts one that can be closed without harm, so that
/// idle connections do not keep a probe from its answer.
///
/// May be used on any thread; its connections belong to their loop.
final class AdministrationListener: @unchecked Sendable {
    // Unchecked: only tasks on the loop access the connections.

    /// What a connection waits for; earlier cases are evicted before later ones.
    enum Wait: Int {
        case firstByte, restOfRequest, answer, sending
        /// The server works on a request that must be finished.
        case nothing
    }

    /// One of the connections.
    final class Connection: @unchecked Sendable {
        /// The connected socket; this type does not close it.
        let descriptor: Int32
        private let listener: AdministrationListener
        fileprivate var wait = Wait.nothing
        /// Whether a new connection has taken its place: further requests are not read, even if already received.
        fileprivate(set) var isEvicted = false

        fileprivate init(_ descriptor: Int32, of listener: AdministrationListener) {
            self.descriptor = descriptor
            self.listener = listener
        }

        /// Records that the connection now waits for its next request.
        func expectRequest() {
            guard !isEvicted else { return }
            listener.remove(self)
            listener.connections.append(self)
        }

        /// Runs the body, during which the connection may be evicted.
        func waiting<Result>(for wait: Wait, _ body: () async -> Result) async -> Result {
            self.wait = wait
            defer { self.wait = .nothing }
            return await body()
        }
    }

    private let listener: Listener
    private let limit: Int
    private let lastWait: Wait
    /// In the order in which they began to wait for their current request.
    private var connections: [Connection] = []

    /// - Parameters:
    ///   - listener: Accepted from on one loop only.
    ///   - limit: How many connections may be open; a further one evicts an idle one, or is closed at once if none is idle.
    ///   - lastWait: Connections in a later wait than this are not evicted by new ones.
    init(_ listener: Listener, limit: Int, evictingUpTo lastWait: Wait) {
        (self.listener, self.limit, self.lastWait) = (listener, limit, lastWait)
    }

    /// Opens the listeners of `admin.listen`; a host name may resolve to several addresses.
    static func open(_ addresses: [ListenAddress]) throws(StartError) -> [AdministrationListener] {
        var listeners: [AdministrationListener] = []
        for address in addresses {
            do {
                listeners += try ClientListener.open(address, tls: nil, clients: .none).map {
                    AdministrationListener($0.listener, limit: 64, evictingUpTo: .sending)
                }
            } catch {
                throw error.ofAdministration
            }
        }
        return listeners
    }

    /// The address, for the log.
    var name: String { listener.name }

    /// Whether only programs on this machine can reach it.
    var isLocal: Bool { listener.isLocal }

    /// Accepts connections until the loop is abandoned, and returns when all connections have ended.
    ///
    /// - Parameters:
    ///   - loop: The calling task's loop.
    ///   - logger: Receives an error while no connections can be accepted.
    ///   - serve: Serves a connection and closes its socket, in its own task on the loop.
    func accept(
        on loop: EventLoop, _ logger: Logger,
        serve: @escaping @Sendable (Connection) async -> Void
    ) async {
        await withDiscardingTaskGroup { group in
            let failures = RateLimitedLog(logger, .error)
            var acceptor = Acceptor(listener, on: loop, outlastsDraining: true)
            while !loop.isAbandoned {
                switch await acceptor.next() {
                case .accepted(let descriptor, _):
                    guard let connection = admit(descriptor) else {
                        _ = FileDescriptor(owning: descriptor)
                        continue
                    }
                    group.addTask(executorPreference: loop) {
                        await serve(connection)
                        self.remove(connection)
                    }
                    // Let the new connection read its request, and the evicted one close, before the next is accepted.
                    await Task.yield()
                case .failed(let error):
                    failures.log("\(name) accepts no connections for now: \(error)")
                    await loop.sleep(until: loop.now + Nanoseconds(.milliseconds(100)))
                case .finished: return
                }
            }
        }
    }

    /// Adds a connection; evicts another one if the limit is reached.
    ///
    /// - Parameter descriptor: A connected socket, which the caller continues to own.
    /// - Returns: Nil if the limit is reached and no connection can be evicted.
    private func admit(_ descriptor: Int32) -> Connection? {
        if connections.count >= limit {
            // The first of those with the earliest wait.
            let idlest = connections.min { $0.wait.rawValue < $1.wait.rawValue }
            guard let idlest, idlest.wait.rawValue <= lastWait.rawValue else { return nil }
            // Ends its wait; its task then closes the descriptor, which is open for certain until then.
            _ = shutdown(idlest.descriptor, Int32(SHUT_RDWR))
            idlest.isEvicted = true
            remove(idlest)
        }
        let connection = Connection(descriptor, of: self)
        connections.append(connection)
        return connection
    }

    /// Removes a connection that has ended.
    private func remove(_ connection: Connection) {
        connections.removeAll { $0 === connection }
    }
}

extension AdministrationListener {
    /// Opens the control socket: the Unix socket in the data directory on which commands reach a running server over HTTP.
    ///
    /// Only the server's user and root may connect (mode 0600). The answer to `POST /store/NAME` with a request in JSON is lines
    /// of JSON, the last of which is the reply or an error: see `ControlLine`. All paths of `AdministrationEndpoints` work here
    /// as well, and only here those that change something. Examples:
    ///
    ///     curl --unix-socket data/control.sock -d '{"id": "9f8a4c1e7b3d60528cd1e5f27a94b306"}' http://localhost/store/get
    ///     curl --unix-socket data/control.sock http://localhost/readyz
    ///
    /// An error is only logged, as the server can serve its clients without the socket.
    ///
    /// - Returns: Nil if the socket could not be opened.
    static func control(in directory: String, _ logger: Logger) -> AdministrationListener? {
        let path = ControlSocketAddress.path(in: directory)
        do {
            // A request that has begun is not interrupted by a new connection. Each may take twice `bodyLimit`.
            return AdministrationListener(
                try Listener(unixPath: path, mode: 0o600), limit: 8, evictingUpTo: .firstByte)
        } catch {
            logger.warning(
                """
                \(path) cannot be opened, so that commands such as token-cache backup work only while the server is stopped: \(error)
                """
            )
            return nil
        }
    }
}
