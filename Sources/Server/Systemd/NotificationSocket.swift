internal import EventLoop
internal import Glibc
internal import System

/// The socket on which the service manager receives messages from its services (sd_notify(3)).
struct NotificationSocket: ~Copyable, Sendable {
    private let socket: FileDescriptor
    private let address: UnixSocketAddress

    /// - Parameter text: `NOTIFY_SOCKET`: the path of a Unix socket, or `@` and a name in the abstract namespace.
    ///   `vsock:...`, with which a virtual machine reaches its host, is not supported.
    init(_ text: String) throws(SystemError) {
        guard text.hasPrefix("/") || text.hasPrefix("@") else {
            throw SystemError(call: "NOTIFY_SOCKET", code: EAFNOSUPPORT)
        }
        let address = try UnixSocketAddress(name: text, call: "NOTIFY_SOCKET")
        socket = try Self.socket()
        self.address = address
    }

    private static func socket() throws(SystemError) -> FileDescriptor {
        let socket = try FileDescriptor(socket: AF_UNIX, SOCK_DGRAM.rawValue)
        // A service manager that has stopped reading must not block us.
        try socket.setTimeout(seconds: 1)
        return socket
    }

    /// Sends one message; blocks for a second at most.
    func send(_ message: String) throws(SystemError) {
        let bytes = Array(message.utf8)
        let number = socket.number
        let count = unsafe address.withPointer { address, length in
            // On a socket with a timeout for sending, a signal interrupts the call even if its handler has SA_RESTART
            // (signal(7)).
            retryingInterrupts {
                unsafe sendto(number, bytes, bytes.count, Int32(MSG_NOSIGNAL), address, length)
            }
        }
        guard count == bytes.count else { throw SystemError.last("sendto") }
    }
}
