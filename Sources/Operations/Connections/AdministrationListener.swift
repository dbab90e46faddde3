internal import EventLoop
internal import Logging
internal import Server
internal import Settings
internal import System

/// A listener of the administration, separate from the clients' listeners.
///
/// Any thread, except for its connections, which belong to their loop.
final class AdministrationListener: Sendable {
    private let listener: Listener
    private let connections: AdministrationConnections

    /// How many connections may be open; a further one evicts an idle one, or is closed at once if none is idle.
    private static let connectionLimit = 64
    /// The limit while descriptors are scarce.
    private static let scarceLimit = 4

    /// - Parameters:
    ///   - listener: Accepted from on one loop only.
    ///   - lastWait: Connections in a later wait than this are not evicted by new ones.
    init(_ listener: Listener, evictingUpTo lastWait: AdministrationConnections.Wait) {
        self.listener = listener
        connections = AdministrationConnections(evictingUpTo: lastWait)
    }

    /// Opens the listeners of `admin.listen`; a host name may resolve to several addresses.
    static func open(_ addresses: [ListenAddress]) throws(StartError) -> [AdministrationListener] {
        var listeners: [AdministrationListener] = []
        for address in addresses {
            do throws(StartError) {
                listeners += try ClientListener.open(address, tls: nil, clients: .none).map {
                    AdministrationListener($0.listener, evictingUpTo: .sending)
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
    ///   - logger: Receives an error if the listener cannot be used.
    ///   - reserve: The descriptors that clients' connections leave free; the administration uses a few of them.
    ///   - serve: Serves a connection and closes its socket, in its own task on the loop.
    func accept(
        on loop: EventLoop, _ logger: Logger, leaving reserve: DescriptorReserve,
        serve: @escaping @Sendable (AdministrationConnections.Connection) async -> Void
    ) async {
        await withDiscardingTaskGroup { group in
            guard let acceptor = await acceptor(on: loop, logger) else { return }
            while !loop.isAbandoned {
                switch await acceptor.next() {
                case .accepted(let descriptor, _):
                    let limit = reserve.contains(descriptor) ? Self.scarceLimit : Self.connectionLimit
                    guard let connection = connections.admit(descriptor, limit: limit) else {
                        _ = FileDescriptor(owning: descriptor)
                        continue
                    }
                    group.addTask(executorPreference: loop) { [connections] in
                        await serve(connection)
                        connections.remove(connection)
                    }
                    // Let the new connection read its request, and the evicted one close, before the next is accepted.
                    await Task.yield()
                case .failed: await loop.sleep(until: loop.now + Self.pause)
                case .finished: return
                }
            }
        }
    }

    /// How long to wait before another attempt to accept.
    private static let pause = Nanoseconds(.milliseconds(100))

    /// Begins to accept as soon as the system has enough memory for that; nil if the loop is abandoned first.
    private func acceptor(on loop: EventLoop, _ logger: Logger) async -> Acceptor? {
        var isReported = false
        while !loop.isAbandoned {
            do throws(SystemError) {
                return try Acceptor(listener, on: loop, outlastsDraining: true)
            } catch {
                if !isReported { logger.error("\(name) accepts no connections for now: \(error)") }
                isReported = true
                await loop.sleep(until: loop.now + Self.pause)
            }
        }
        return nil
    }
}
