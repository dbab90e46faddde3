import Audit
import Glibc
import Settings
import TokenService
import TokenStore

/// The control socket's path and the size limit of its requests, which server and commands share.
enum ControlSocketAddress {
    /// The largest body of a request in bytes: room for a batch of an import.
    static let bodyLimit = 16 << 20

    /// The path of the socket in a data folder.
    static func path(in directory: String) -> String { directory + "/" + DataDirectory.controlSocketName }
}

/// A process that connected to the control socket: its user id and process id at that time.
struct Requester: Hashable, Sendable, CustomStringConvertible {
    private let user: UInt32
    private let processID: Int32

    /// The peer of a connection (unix(7), SO_PEERCRED).
    init(connectedTo descriptor: Int32) {
        // The fields of struct ucred, which glibc declares only with _GNU_SOURCE.
        var credentials: (number: Int32, user: UInt32, group: UInt32) = (0, .max, .max)
        var length = socklen_t(MemoryLayout.size(ofValue: credentials))
        _ = unsafe getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &credentials, &length)
        (user, processID) = (credentials.user, credentials.number)
    }

    var description: String { "uid \(user), process \(processID) over control.sock" }

    /// Who it is in the audit log.
    var actor: AuditEvent.Actor { .operator(uid: user) }
}
