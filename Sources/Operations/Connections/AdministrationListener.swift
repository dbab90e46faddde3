internal import EventLoop
internal import Logging
internal import Server
internal import Settings
internal import System

/// A listener for those who run the server, apart from its clients' ones.
///
/// Any thread, but for its connections.
final class AdministrationListener: Sendable {
    private let listener: Listener
    private let connections: AdministrationConnections

    /// Open connections; one more takes the place of an idle one, and is closed at once when there is none.
    private static let connectionLimit = 64
    /// The same when descriptors are scarce.
    private static let scarceLimit = 4

    /// - Parameters:
    ///   - listener: To be accepted from on one loop.
    ///   - lastWait: Connections in a later wait than this are not given up for new ones.
    init(_ listener: Listener, givingUp lastWait: AdministrationConnections.Wait) {
        self.listener = listener
        connections = AdministrationConnections(givingUp: lastWait)
    }

    /// The listeners of `admin.listen`: a name may stand for several addresses.
    static func open(_ addresses: [ListenAddress]) throws(StartError) -> [AdministrationListener] {
        var listeners: [AdministrationListener] = []
        for address in addresses {
            do throws(StartError) {
                listeners += try ClientListener.open(address, tls: nil).map {
                    AdministrationListener($0.listener, givingUp: .takingOfAnswer)
                }
            } catch {
                switch error {
                case .listen(let name, let isInUse, _, let reason):
                    throw .administration(address: name, isInUse: isInUse, reason: reason)
                case .resolution(let name, let reason):
                    throw .administration(address: name, isInUse: false, reason: reason)
                default: throw error
                }
            }
        }
        return listeners
    }

    /// What it listens on.
    var name: String { listener.name }

    /// Whether only programs on this machine can reach it.
    var isLocal: Bool { listener.isLocal }

    /// Accepts on a loop until that is abandoned, and returns when what was asked for is over.
    ///
    /// - Parameters:
    ///   - loop: The loop of the calling task.
    ///   - logger: Told when nothing can be accepted.
    ///   - reserve: What clients' connections leave alone: of it these take a few.
    ///   - serve: Serves a connection and closes its socket, in a task of its own on the loop.
    func accept(
        on loop: EventLoop, _ logger: Logger, leaving reserve: DescriptorReserve,
        serve: @escaping @Sendable (_ connection: AdministrationConnections.Connection) async -> Void
    ) async {
        await withDiscardingTaskGroup { group in
            let acceptor: Acceptor
            do throws(SystemError) {
                acceptor = try Acceptor(listener, on: loop, outlastsDraining: true)
            } catch {
                logger.error("\(name) cannot be accepted from until a restart: \(error)")
                return
            }
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
                    // The new one reads its request, and the one that was given up closes, before the next comes.
                    await Task.yield()
                case .failed:
                    await loop.sleep(until: loop.now + Nanoseconds(.milliseconds(100)))
                case .finished: return
                }
            }
        }
    }
}
