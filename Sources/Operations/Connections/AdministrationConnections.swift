internal import EventLoop
internal import Glibc

/// The open connections of one listener of the administration.
///
/// There are few, so that one more takes the place of another one that nothing is lost with: whoever opens connections and
/// leaves them idle does not keep a probe from its answer.
///
/// Belongs to its loop's thread.
final class AdministrationConnections: @unchecked Sendable {
    // Unchecked: only tasks on the loop touch it and its connections.

    /// What a connection waits for, what is given up first before the others.
    enum Wait: Int, Comparable {
        case firstByte, restOfRequest, answer, takingOfAnswer

        static func < (one: Wait, other: Wait) -> Bool { one.rawValue < other.rawValue }
    }

    /// One of the connections.
    final class Connection: @unchecked Sendable {
        /// Of a connected socket, which is not this value's to close.
        let descriptor: Int32
        private let others: AdministrationConnections
        /// The order in which connections began to wait for their current request.
        fileprivate var turn = 0
        /// Nil while the server does something for it that is to be finished.
        fileprivate var wait: Wait?
        /// Whether another one has its place: no further request of it is read, though some may be there already.
        fileprivate(set) var isGivenUp = false

        fileprivate init(_ descriptor: Int32, among others: AdministrationConnections) {
            self.descriptor = descriptor
            self.others = others
        }

        /// Notes that it waits for its next request from now on.
        func expectRequest() {
            others.turns += 1
            turn = others.turns
        }

        /// Waits; the connection may be given up meanwhile.
        func waiting<Result>(for wait: Wait, _ body: () async -> Result) async -> Result {
            self.wait = wait
            defer { self.wait = nil }
            return await body()
        }
    }

    private var connections: [Connection] = []
    private var turns = 0
    private let lastWait: Wait

    /// - Parameter lastWait: Connections in a later wait than this are never given up.
    init(givingUp lastWait: Wait) {
        self.lastWait = lastWait
    }

    /// Takes in a connection, for which another one may be given up.
    ///
    /// - Parameters:
    ///   - descriptor: A connected socket; it stays the caller's.
    ///   - limit: Of open connections.
    /// - Returns: Nil when there is no room, as all have requests under way.
    func admit(_ descriptor: Int32, limit: Int) -> Connection? {
        if connections.count >= limit {
            let idle = connections.filter { $0.wait.map { $0 <= lastWait } ?? false }
            guard let oldest = idle.min(by: { ($0.wait ?? lastWait, $0.turn) < ($1.wait ?? lastWait, $1.turn) }) else {
                return nil
            }
            giveUp(oldest)
        }
        let connection = Connection(descriptor, among: self)
        connections.append(connection)
        return connection
    }

    /// Forgets a connection that is over.
    func remove(_ connection: Connection) {
        connections.removeAll { $0 === connection }
    }

    /// Has its wait end with the end of the connection, which then closes the descriptor: as it waits, that is open.
    private func giveUp(_ connection: Connection) {
        _ = shutdown(connection.descriptor, Int32(SHUT_RDWR))
        connection.wait = nil
        connection.isGivenUp = true
        remove(connection)
    }
}
