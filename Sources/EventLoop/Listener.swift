internal import CLinux
internal import Glibc
internal import Synchronization

/// A bound and listening TCP socket, shared by all loops that accept from it.
package final class Listener: Sendable {
    let descriptor: FileDescriptor
    /// The address as bound, with the real port where 0 was asked for.
    package let address: SocketAddress
    private let acceptors = Atomic<Int>(0)

    /// Binds and listens.
    ///
    /// Without `SO_REUSEPORT`: a second server on the same port is an error to be told of, not a silent sharing of
    /// connections. With `SO_REUSEADDR`, so that a restart does not wait for the old connections' TIME_WAIT.
    ///
    /// - Parameters:
    ///   - address: An IPv6 address takes no IPv4 connections: each family is its own listener.
    ///   - backlog: The kernel caps it at `net.core.somaxconn`.
    package init(binding address: SocketAddress, backlog: Int32 = 4096) throws(SystemError) {
        let number = socket(
            address.family, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue), 0
        )
        guard number >= 0 else { throw SystemError.last("socket") }
        descriptor = FileDescriptor(owning: number)
        try descriptor.setOption(SOL_SOCKET, SO_REUSEADDR, "SO_REUSEADDR")
        if address.family == AF_INET6 {
            try descriptor.setOption(Int32(IPPROTO_IPV6), IPV6_V6ONLY, "IPV6_V6ONLY")
        }
        guard unsafe address.withPointer({ unsafe bind(number, $0, $1) }) == 0 else { throw SystemError.last("bind") }
        guard listen(number, backlog) == 0 else { throw SystemError.last("listen") }
        self.address = unsafe try SocketAddress("getsockname") { unsafe getsockname(number, $0, $1) }
    }

    fileprivate func addAcceptor() {
        acceptors.add(1, ordering: .relaxed)
    }

    /// Stops listening when the last acceptor goes: from then on clients are refused instead of left waiting.
    fileprivate func removeAcceptor() {
        // On a listening socket Linux takes this for the end of listening.
        if acceptors.subtract(1, ordering: .acquiringAndReleasing).newValue == 0 {
            _ = shutdown(descriptor.number, Int32(SHUT_RD))
        }
    }
}

extension FileDescriptor {
    /// Turns a socket option on.
    func setOption(_ level: Int32, _ option: Int32, _ name: String) throws(SystemError) {
        var on: Int32 = 1
        guard unsafe setsockopt(number, level, option, &on, socklen_t(MemoryLayout<Int32>.size)) == 0 else {
            throw SystemError.last("setsockopt \(name)")
        }
    }
}

/// A listener as one loop sees it.
///
/// Belongs to the loop's thread.
package struct Acceptor: ~Copyable {
    private let listener: Listener
    private let loop: EventLoop
    private let id: RegistrationID

    package init(_ listener: Listener, on loop: EventLoop) throws(SystemError) {
        self.listener = listener
        self.loop = loop
        id = try loop.registerShared(listener.descriptor.number)
        listener.addAcceptor()
    }

    /// What came of trying to accept.
    package enum Outcome {
        /// A new connection; whoever gets the number owns it. A plain number, as it may travel to another loop.
        case accepted(descriptor: Int32, peer: SocketAddress)
        /// The loop is draining and the queue is empty: accept no more.
        case finished
        /// Nothing left to accept with, or another fault that time may mend.
        case failed(SystemError)
    }

    /// Takes the next connection off the queue, waiting for one if there is none.
    ///
    /// While draining, what the kernel has already queued is still accepted: those clients believe to be connected.
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
                    if loop.isDraining { return .finished }
                    loop.markBlocked(.readable, of: id)
                    _ = await loop.wait(for: .readable, of: id, until: .never, isIdle: true)
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
