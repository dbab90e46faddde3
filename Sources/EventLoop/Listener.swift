import CLinux
import Glibc
import Synchronization
package import System

/// A bound and listening stream socket, shared by all loops that accept from it.
package final class Listener: Sendable {
    let descriptor: FileDescriptor
    /// What it listens on: `127.0.0.1:8080` with the real port where 0 was asked for, or `unix:/run/token-cache.sock`.
    package var name: String { address.description }
    /// True when only programs on this machine can reach it.
    package var isLocal: Bool { address.endpoint?.address.isLoopback ?? true }
    /// The port that it listens on; 0 for a Unix socket.
    package var port: UInt16 { address.endpoint?.port ?? 0 }
    let address: SocketAddress
    /// The Unix socket's file, which is removed with the listener.
    private let path: String?
    /// Whether another process, such as systemd, keeps the socket open and may use it after us.
    private let isAdopted: Bool
    private let isFileRemoved = Atomic(false)
    private let acceptors = Atomic<Int>(0)

    /// Binds and listens.
    ///
    /// Without `SO_REUSEPORT`: a second server on the same port must fail, not share the connections silently. With
    /// `SO_REUSEADDR`, so that a restart does not wait for old connections in TIME_WAIT.
    ///
    /// - Parameter address: An IPv6 address takes no IPv4 connections: each family needs a listener of its own.
    package init(binding address: SocketAddress) throws(SystemError) {
        descriptor = try Self.boundSocket(address)
        let number = descriptor.number
        try Self.listen(on: number)
        let bound = unsafe try SocketAddress("getsockname") { unsafe getsockname(number, $0, $1) }
        self.address = bound
        path = nil
        isAdopted = false
    }

    /// Fails if an address cannot be listened on; does not listen, so that no client can connect meanwhile.
    package static func tryBinding(_ address: SocketAddress) throws(SystemError) {
        _ = try boundSocket(address)
    }

    private static func boundSocket(_ address: SocketAddress) throws(SystemError) -> FileDescriptor {
        let descriptor = try makeSocket(address.family)
        try descriptor.setOption(SOL_SOCKET, SO_REUSEADDR, "SO_REUSEADDR")
        if address.family == AF_INET6 { try descriptor.setOption(Int32(IPPROTO_IPV6), IPV6_V6ONLY, "IPV6_V6ONLY") }
        try address.bind(descriptor)
        return descriptor
    }

    /// Takes over a stream socket that already listens, and that its owner, such as systemd, keeps open as well.
    ///
    /// It goes on listening when we stop: clients that connect then wait for the next server that the owner passes it to. A
    /// Unix socket's file stays too, and the owner decides on the length of the queue.
    ///
    /// - Parameter number: The descriptor, which is taken over.
    /// - Returns: Nil if it is no such socket.
    package init?(adopting number: Int32) {
        guard Self.option(SO_ACCEPTCONN, of: number) == 1,
            Self.option(SO_TYPE, of: number) == Int32(SOCK_STREAM.rawValue),
            let family = Self.option(SO_DOMAIN, of: number), [AF_INET, AF_INET6, AF_UNIX].contains(family),
            fcntl(number, F_SETFL, O_NONBLOCK) == 0, fcntl(number, F_SETFD, FD_CLOEXEC) == 0,
            let address = unsafe try? SocketAddress("getsockname", { unsafe getsockname(number, $0, $1) })
        else { return nil }
        self.address = address
        path = nil
        isAdopted = true
        descriptor = FileDescriptor(owning: number)
    }

    /// An option of a socket (socket(7)); nil if it is not a socket.
    private static func option(_ option: Int32, of number: Int32) -> Int32? {
        var value: Int32 = 0
        var length = socklen_t(MemoryLayout<Int32>.size)
        return unsafe getsockopt(number, SOL_SOCKET, option, &value, &length) == 0 ? value : nil
    }

    /// Listens on a Unix socket.
    ///
    /// Replaces a socket file that a crash has left behind, on which nothing listens; any other file is left alone. A failure
    /// leaves no file behind.
    ///
    /// - Parameters:
    ///   - path: At most 107 bytes (unix(7)).
    ///   - mode: The file's permission bits, whatever the umask is.
    package init(unixPath path: String, mode: UInt32) throws(SystemError) {
        descriptor = try Self.makeSocket(AF_UNIX)
        let unixAddress = try SocketAddress(name: path, call: "bind")
        if try Self.isAbandonedSocket(path, unixAddress) { _ = unsafe unlink(path) }
        let number = descriptor.number
        // The file gets the mode of the socket, less the umask.
        guard fchmod(number, mode) == 0 else { throw SystemError.last("fchmod") }
        try unixAddress.bind(descriptor)
        do throws(SystemError) {
            // Only if necessary: others who may write to the folder could have put a link to another file there. Whatever
            // the file's mode is until then, no client can connect before it listens.
            if !Self.isSocket(path, mode: mode), unsafe chmod(path, mode) != 0 { throw SystemError.last("chmod") }
            try Self.listen(on: number)
            address = unsafe try SocketAddress("getsockname") { unsafe getsockname(number, $0, $1) }
        } catch {
            _ = unsafe unlink(path)
            throw error
        }
        self.path = path
        isAdopted = false
    }

    private static func isSocket(_ path: String, mode: UInt32) -> Bool {
        guard let status = FileStatus(path, followingLinks: false) else { return false }
        return status.isSocket && status.mode == mode
    }

    private static func makeSocket(_ family: Int32) throws(SystemError) -> FileDescriptor {
        try FileDescriptor(socket: family, SOCK_STREAM.rawValue | SOCK_NONBLOCK.rawValue)
    }

    private static func listen(on number: Int32) throws(SystemError) {
        // The kernel caps this at net.core.somaxconn.
        guard Glibc.listen(number, 4096) == 0 else { throw SystemError.last("listen") }
    }

    /// Whether the path is that of a socket that refuses connections; fails if this user may not connect to it.
    private static func isAbandonedSocket(_ path: String, _ address: SocketAddress) throws(SystemError) -> Bool {
        guard FileStatus(path, followingLinks: false)?.isSocket == true else { return false }
        do {
            try address.connect(makeSocket(AF_UNIX))
            return false
        } catch {
            guard !error.isPermissionDenied else { throw error }
            return error.code == ECONNREFUSED
        }
    }

    /// Removes the socket's file, once: later there could be another server's file in its place.
    private func removeFile() {
        guard let path, !isFileRemoved.exchange(true, ordering: .relaxed) else { return }
        _ = unsafe unlink(path)
    }

    deinit {
        removeFile()
    }

    func addAcceptor() {
        acceptors.add(1, ordering: .relaxed)
    }

    /// Stops listening with the last acceptor, so that clients are refused instead of left waiting.
    func removeAcceptor() {
        // Ends listening on Linux, also for other descriptors of the same socket.
        if acceptors.subtract(1, ordering: .acquiringAndReleasing).newValue == 0, !isAdopted {
            _ = shutdown(descriptor.number, Int32(SHUT_RD))
            removeFile()
        }
    }
}

/// A listener as one loop sees it.
///
/// Belongs to the loop's thread.
package struct Acceptor: ~Copyable {
    private let listener: Listener
    private let loop: EventLoop
    private let outlastsDraining: Bool
    /// Nil before the first wait.
    private var id: RegistrationID?

    /// - Parameters:
    ///   - listener: What to accept from.
    ///   - loop: The loop of the calling task.
    ///   - outlastsDraining: Whether it accepts until the loop is abandoned, so that operators can watch the shutdown.
    package init(_ listener: Listener, on loop: EventLoop, outlastsDraining: Bool = false) {
        self.listener = listener
        self.loop = loop
        self.outlastsDraining = outlastsDraining
        listener.addAcceptor()
    }

    /// The outcome of an attempt to accept.
    package enum Outcome {
        /// A new connection, which the caller owns; its descriptor is a plain number, as it may be handed to another loop.
        case accepted(descriptor: Int32, peer: SocketAddress)
        /// The loop is draining, or has been abandoned, and the queue is empty: accept no more.
        case finished
        /// No descriptors are left, the kernel has no memory to watch the listener, or another error that may pass: try again.
        case failed(SystemError)
    }

    /// Takes the next connection off the queue, waiting for one if there is none.
    ///
    /// While draining, connections that the kernel has queued are still accepted: to their clients they are established.
    package mutating func next() async -> Outcome {
        while true {
            do {
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
                case EAGAIN: break
                // Errors of the new connection, not of the listener (accept(2), "Error handling").
                case ECONNABORTED, EPROTO, ENOPROTOOPT, EHOSTDOWN, ENONET, EHOSTUNREACH, ENETUNREACH, ENETDOWN, EPERM:
                    continue
                default:
                    return .failed(error)
                }
            }
            if outlastsDraining ? loop.isAbandoned : loop.isDraining { return .finished }
            do {
                // A connection that has come since the attempt to accept is reported.
                if id == nil { id = try loop.registerShared(listener.descriptor.number) }
            } catch {
                return .failed(error)
            }
            if let id {
                loop.markBlocked(.readable, of: id)
                _ = await loop.wait(for: .readable, of: id, until: .never, outlastsDraining ? [] : .idle)
            }
        }
    }

    deinit {
        if let id { loop.deregister(id, isShared: true) }
        listener.removeAcceptor()
    }
}
