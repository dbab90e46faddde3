internal import Audit
internal import Glibc
internal import HTTP

/// Who has sent a request to the administration.
enum Requester: Hashable, Sendable, CustomStringConvertible {
    /// Any program that can connect to `admin.listen`, including a browser that shows a foreign page.
    ///
    /// Without an address if the listener is a Unix socket.
    case network(IPAddress?)
    /// A program that has shown an admin key over TCP, by the key's name.
    case admin(key: String, address: IPAddress?)
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
        case .network(let address): "a program at \(Self.text(address))"
        case .admin(let key, let address): "admin key \(key) from \(Self.text(address))"
        case .process(let user, let number): "uid \(user), process \(number) over control.sock"
        }
    }

    /// Who it is in the audit log.
    var actor: AuditEvent.Actor {
        switch self {
        case .network: .none
        case .admin(let key, _): .adminKey(key)
        case .process(let user, _): .operator(uid: user)
        }
    }

    /// From where, in the audit log; nil on this machine.
    var addressText: String? {
        switch self {
        case .network(let address), .admin(_, let address): address.map { "\($0)" }
        case .process: nil
        }
    }

    private static func text(_ address: IPAddress?) -> String { address.map { "\($0)" } ?? "admin.listen" }
}
