internal import CLinux
internal import Glibc
package import System

/// A listener as one loop sees it.
///
/// Belongs to the loop's thread.
package struct Acceptor: ~Copyable {
    private let listener: Listener
    private let loop: EventLoop
    private let id: RegistrationID
    private let outlastsDraining: Bool

    /// - Parameters:
    ///   - listener: What to accept from.
    ///   - loop: The loop of the calling task.
    ///   - outlastsDraining: Whether it accepts until the loop is abandoned, so that operators can watch the shutdown.
    package init(_ listener: Listener, on loop: EventLoop, outlastsDraining: Bool = false) throws(SystemError) {
        self.listener = listener
        self.loop = loop
        self.outlastsDraining = outlastsDraining
        id = try loop.registerShared(listener.descriptor.number)
        listener.addAcceptor()
    }

    /// The outcome of an attempt to accept.
    package enum Outcome {
        /// A new connection, which the caller owns. A plain number, as it may be handed to another loop.
        case accepted(descriptor: Int32, peer: SocketAddress)
        /// The loop is draining, or has been abandoned, and the queue is empty: accept no more.
        case finished
        /// No descriptors are left, or another error that may pass.
        case failed(SystemError)
    }

    /// Takes the next connection off the queue, waiting for one if there is none.
    ///
    /// While draining, connections that the kernel has queued are still accepted: to their clients they are established.
    package func next() async -> Outcome {
        while true {
            do throws(SystemError) {
                var number: Int32 = -1
                let peer = unsafe try SocketAddress("accept4") { address, length in
                    number = retryingInterrupts {
                        unsafe accept4(
                            listener.descriptor.number, address, length,
                            Int32(SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue)
                        )
                    }
                    return number
                }
                return .accepted(descriptor: number, peer: peer)
            } catch {
                switch error.code {
                case EAGAIN:
                    if outlastsDraining ? loop.isAbandoned : loop.isDraining { return .finished }
                    loop.markBlocked(.readable, of: id)
                    _ = await loop.wait(for: .readable, of: id, until: .never, isIdle: !outlastsDraining)
                // Errors of the new connection, not of the listener (accept(2), "Error handling").
                case ECONNABORTED, EPROTO, ENOPROTOOPT, EHOSTDOWN, ENONET, EHOSTUNREACH, ENETUNREACH, ENETDOWN, EPERM:
                    continue
                default:
                    return .failed(error)
                }
            }
        }
    }

    deinit {
        loop.deregister(id, isShared: true)
        listener.removeAcceptor()
    }
}
