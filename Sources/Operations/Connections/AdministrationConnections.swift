internal import EventLoop
internal import Glibc

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
    private let lastWait: Wait

    /// - Parameter lastWait: Connections in a later wait than this are never evicted.
    init(evictingUpTo lastWait: Wait) {
        self.lastWait = lastWait
    }

    /// Adds a connection; evicts another one if the limit is reached.
    ///
    /// - Parameters:
    ///   - descriptor: A connected socket, which the caller continues to own.
    ///   - limit: How many connections may be open.
    /// - Returns: Nil if the limit is reached and no connection can be evicted.
    func admit(_ descriptor: Int32, limit: Int) -> Connection? {
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
