internal import Glibc

/// Who asks something of the server.
enum Asker: Hashable, Sendable, CustomStringConvertible {
    /// Any program that reaches `admin.listen`, or a page in a browser there.
    case network
    /// A program that the control socket's file has let in; its user and number as they were when it connected.
    case process(user: UInt32, number: Int32)

    /// Whoever has connected to the control socket (unix(7), SO_PEERCRED).
    init(connectedTo descriptor: Int32) {
        // The fields of struct ucred, which is behind _GNU_SOURCE.
        var credentials: (number: Int32, user: UInt32, group: UInt32) = (0, .max, .max)
        var length = socklen_t(MemoryLayout.size(ofValue: credentials))
        _ = unsafe getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &credentials, &length)
        self = .process(user: credentials.user, number: credentials.number)
    }

    var description: String {
        switch self {
        case .network: "a program over TCP"
        case .process(let user, let number): "uid \(user), process \(number) over control.sock"
        }
    }
}
