internal import EventLoop
internal import Glibc

/// The socket on which the service manager hears from its services (sd_notify(3)).
struct NotificationSocket: ~Copyable, Sendable {
    private let socket: FileDescriptor
    private let address: sockaddr_un
    private let length: socklen_t

    /// - Parameter text: `NOTIFY_SOCKET`: the path of a Unix socket, or `@` and a name in the abstract namespace.
    ///   `vsock:...`, by which a virtual machine tells its host, is not supported.
    init(_ text: String) throws(SystemError) {
        guard text.hasPrefix("/") || text.hasPrefix("@") else {
            throw SystemError(call: "NOTIFY_SOCKET", code: EAFNOSUPPORT)
        }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        var bytes = Array(text.utf8)
        // An abstract name begins with a NUL byte and has none at its end (unix(7)): its length is part of it.
        if bytes[0] == UInt8(ascii: "@") { bytes[0] = 0 }
        guard bytes.count < MemoryLayout.size(ofValue: address.sun_path) else {
            throw SystemError(call: "NOTIFY_SOCKET", code: ENAMETOOLONG)
        }
        unsafe withUnsafeMutableBytes(of: &address.sun_path) { unsafe $0.copyBytes(from: bytes) }

        let number = Glibc.socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        guard number >= 0 else { throw SystemError.last("socket") }
        let socket = FileDescriptor(owning: number)
        // A manager that has stopped reading must not stop us.
        var limit = timeval(tv_sec: 1, tv_usec: 0)
        let size = socklen_t(MemoryLayout<timeval>.size)
        guard unsafe setsockopt(number, SOL_SOCKET, SO_SNDTIMEO, &limit, size) == 0 else {
            throw SystemError.last("setsockopt SO_SNDTIMEO")
        }
        self.socket = socket
        self.address = address
        length = socklen_t(MemoryLayout<sa_family_t>.size + bytes.count + (bytes[0] == 0 ? 0 : 1))
    }

    /// Sends one message; waits a second at most.
    func send(_ message: String) throws(SystemError) {
        let bytes = Array(message.utf8)
        let count = unsafe withUnsafePointer(to: address) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                unsafe sendto(socket.number, bytes, bytes.count, Int32(MSG_NOSIGNAL), $0, length)
            }
        }
        guard count == bytes.count else { throw SystemError.last("sendto") }
    }
}
