internal import EventLoop
internal import Logging
internal import Synchronization

/// A listener for those who run the server, apart from its clients' ones.
///
/// Any thread.
final class AdministrationListener: Sendable {
    private let listener: Listener
    private let connectionCount = Atomic<Int>(0)

    /// Open connections; further ones are closed at once.
    private static let connectionLimit = 64
    /// The same when descriptors are scarce.
    private static let scarceLimit = 4

    init(_ listener: Listener) {
        self.listener = listener
    }

    /// The listeners of `admin.listen`: a name may stand for several addresses.
    static func open(_ addresses: [ListenAddress]) throws(StartError) -> [AdministrationListener] {
        var listeners: [AdministrationListener] = []
        for address in addresses {
            do throws(StartError) {
                listeners += try Entrance.open(address, tls: nil).map { AdministrationListener($0.listener) }
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
    ///   - serve: Serves a connected socket that it owns, in a task of its own on the loop.
    func accept(
        on loop: EventLoop, _ logger: Logger, leaving reserve: DescriptorReserve,
        serve: @escaping @Sendable (_ descriptor: Int32) async -> Void
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
                    let count = connectionCount.add(1, ordering: .relaxed).newValue
                    guard count <= (reserve.has(descriptor) ? Self.scarceLimit : Self.connectionLimit) else {
                        connectionCount.subtract(1, ordering: .relaxed)
                        _ = FileDescriptor(owning: descriptor)
                        continue
                    }
                    group.addTask(executorPreference: loop) { [self] in
                        await serve(descriptor)
                        connectionCount.subtract(1, ordering: .relaxed)
                    }
                case .failed:
                    await loop.sleep(until: loop.now + Nanoseconds(.milliseconds(100)))
                case .finished: return
                }
            }
        }
    }
}
