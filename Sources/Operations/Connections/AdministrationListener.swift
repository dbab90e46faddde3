import EventLoop
import Glibc
import Logging
import Server
import Settings
import System

/// A listener of the administration, separate from the clients' listeners.
///
/// Any thread, except for its connections, which belong to their loop.
final class AdministrationListener: Sendable {
    private let listener: Listener
    private let connections: AdministrationConnections

    /// - Parameters:
    ///   - listener: Accepted from on one loop only.
    ///   - limit: How many connections may be open; a further one evicts an idle one, or is closed at once if none is idle.
    ///   - lastWait: Connections in a later wait than this are not evicted by new ones.
    init(_ listener: Listener, limit: Int, evictingUpTo lastWait: AdministrationConnections.Wait) {
        self.listener = listener
        connections = AdministrationConnections(limit: limit, evictingUpTo: lastWait)
    }

    /// Opens the listeners of `admin.listen`; a host name may resolve to several addresses.
    static func open(_ addresses: [ListenAddress]) throws(StartError) -> [AdministrationListener] {
        var listeners: [AdministrationListener] = []
        for address in addresses {
            do throws(StartError) {
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
        serve: @escaping @Sendable (AdministrationConnections.Connection) async -> Void
    ) async {
        await withDiscardingTaskGroup { group in
            let failures = RateLimitedLog(logger, .error)
            var acceptor = Acceptor(listener, on: loop, outlastsDraining: true)
            while !loop.isAbandoned {
                switch await acceptor.next() {
                case .accepted(let descriptor, _):
                    guard let connection = connections.admit(descriptor) else {
                        _ = FileDescriptor(owning: descriptor)
                        continue
                    }
                    group.addTask(executorPreference: loop) { [connections] in
                        await serve(connection)
                        connections.remove(connection)
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
}

/// The open connections of one listener of the administration.
///
/// Their number is small. When the limit is reached, a new connection evicts one that can be closed without harm, so that
/// idle connections do not keep a probe from its answer.
///
/// Belongs to its loop's thread.
final class AdministrationConnections: @unchecked Sendable {
    // Unchecked: only tasks on the loop access it and its connections.

    /// What a connection waits for; earlier cases are evicted before later ones.
    enum Wait: Int, Comparable {
        case firstByte, restOfRequest, answer, sending

        static func < (one: Wait, other: Wait) -> Bool { one.rawValue < other.rawValue }
    }

    /// One of the connections.
    final class Connection: @unchecked Sendable {
        /// The connected socket; this type does not close it.
        let descriptor: Int32
        private let others: AdministrationConnections
        /// The position among the connections, in the order in which they began to wait for their current request.
        fileprivate var turn = 0
        /// Nil while the server works on a request that must be finished.
        fileprivate var wait: Wait?
        /// Whether a new connection has taken its place: further requests are not read, even if already received.
        fileprivate(set) var isEvicted = false

        fileprivate init(_ descriptor: Int32, among others: AdministrationConnections) {
            self.descriptor = descriptor
            self.others = others
        }

        /// Records that the connection now waits for its next request.
        func expectRequest() {
            others.turns += 1
            turn = others.turns
        }

        /// Runs the body, during which the connection may be evicted.
        func waiting<Result>(for wait: Wait, _ body: () async -> Result) async -> Result {
            self.wait = wait
            defer { self.wait = nil }
            return await body()
        }
    }

    private var connections: [Connection] = []
    private var turns = 0
    private let limit: Int
    private let lastWait: Wait

    /// - Parameters:
    ///   - limit: How many connections may be open.
    ///   - lastWait: Connections in a later wait than this are never evicted.
    init(limit: Int, evictingUpTo lastWait: Wait) {
        self.limit = limit
        self.lastWait = lastWait
    }

    /// Adds a connection; evicts another one if the limit is reached.
    ///
    /// - Parameter descriptor: A connected socket, which the caller continues to own.
    /// - Returns: Nil if the limit is reached and no connection can be evicted.
    func admit(_ descriptor: Int32) -> Connection? {
        if connections.count >= limit {
            let idle = connections.filter { $0.wait.map { $0 <= lastWait } ?? false }
            guard let oldest = idle.min(by: { ($0.wait ?? lastWait, $0.turn) < ($1.wait ?? lastWait, $1.turn) }) else {
                return nil
            }
            evict(oldest)
        }
        let connection = Connection(descriptor, among: self)
        connections.append(connection)
        return connection
    }

    /// Removes a connection that has ended.
    func remove(_ connection: Connection) {
        connections.removeAll { $0 === connection }
    }

    /// Shuts the socket down, which ends the connection's wait; its task then closes the descriptor.
    private func evict(_ connection: Connection) {
        // Open for certain, as the connection's task still waits on it.
        _ = shutdown(connection.descriptor, Int32(SHUT_RDWR))
        connection.wait = nil
        connection.isEvicted = true
        remove(connection)
    }
}
