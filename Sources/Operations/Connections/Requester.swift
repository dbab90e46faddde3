internal import Glibc

/// Who has sent a request to the administration.
enum Requester: Hashable, Sendable, CustomStringConvertible {
    /// Any program that can connect to `admin.listen`, including a browser that shows a foreign page.
    case network
    /// A process that connected to the control socket: its user id and process id at that time.
    case process(user: UInt32, number: Int32)

    /// The peer of a connection to the control socket (unix(7), SO_PEERCRED).
    init(connectedTo descriptor: Int32) {
        // The fields of struct ucred, which glibc declares only with _GNU_SOURCE.
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
