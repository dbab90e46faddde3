internal import Glibc
internal import System
package import TokenStore

/// Why the server cannot start; the description says what to do.
package enum StartError: Error, CustomStringConvertible {
    case store(StoreOpenError)
    /// An address cannot be bound: it is in use, not permitted, or fails for the given reason.
    case listen(address: String, _ isInUse: Bool, _ isPermissionDenied: Bool, String)
    /// A Unix socket cannot be listened on.
    case unixSocket(UnixSocketFault)
    /// An address of `admin.listen` cannot be bound.
    case administration(address: String, isInUse: Bool, reason: String)
    /// Two addresses in the settings exclude each other.
    case conflict(AddressConflict)
    case resolution(address: String, reason: String)
    /// The user or group of a Unix socket's file does not exist.
    case owner(path: String, name: String)
    /// `listen: systemd` without a socket unit.
    case noPassedSockets
    /// The sockets that systemd passed cannot be used.
    case passedSockets(String)
    /// Certificates or keys cannot be used.
    case tls(String)
    /// The access log's file cannot be opened.
    case accessLog(path: String, reason: String)
    /// What `access` names cannot be used.
    case access(String)
    /// The audit log cannot be opened.
    case audit(String)
    case system(String)

    /// The error if a call failed because the system lacks descriptors or memory; nil if it failed for another reason.
    static func shortage(_ error: SystemError) -> StartError? {
        if error.isOutOfDescriptors {
            return .system("\(error); raise the limit of open files with ulimit -n or LimitNOFILE=")
        }
        return error.code == ENOMEM || error.code == ENOBUFS ? .system("\(error)") : nil
    }

    /// Whether the address is in use, possibly by this server itself.
    var isAddressInUse: Bool {
        switch self {
        case .listen(_, true, _, _), .administration(_, true, _): true
        case .unixSocket(let fault): fault.reason == .inUse
        default: false
        }
    }

    /// The same error for an address of `admin.listen`.
    package var ofAdministration: StartError {
        switch self {
        case .listen(let address, let isInUse, _, let reason):
            .administration(address: address, isInUse: isInUse, reason: reason)
        case .resolution(let address, let reason):
            .administration(address: address, isInUse: false, reason: reason)
        default: self
        }
    }

    package var description: String {
        switch self {
        case .store(let error): "\(error)"
        case .listen(let address, true, _, _):
            """
            \(address) is in use by another program; stop that program (ss -ltnp shows it), \
            or listen elsewhere with --listen
            """
        case .listen(let address, _, true, _):
            """
            listening on \(address) is not permitted; ports below 1024 need the capability CAP_NET_BIND_SERVICE, \
            others are chosen with --listen
            """
        case .listen(let address, _, _, let reason):
            "\(address) cannot be listened on: \(reason); choose an address of this machine with --listen"
        case .unixSocket(let fault): "\(fault)"
        case .administration(let address, true, _):
            """
            admin.listen: \(address) is in use by another program, perhaps another token-cache; stop that program \
            (ss -ltnp shows it), or set admin.listen to another address, or to off
            """
        case .administration(let address, _, let reason):
            "admin.listen: \(address) cannot be listened on: \(reason); choose an address of this machine, or off"
        case .conflict(let conflict): "\(conflict)"
        case .resolution(let address, let reason):
            "the address \(address) of --listen cannot be resolved: \(reason)"
        case .owner(let path, let name):
            "unix:\(path): there is no user or group \(name)"
        case .noPassedSockets:
            "listen names systemd, but systemd has passed no sockets; start the server through its socket unit"
        case .passedSockets(let reason): "the sockets that systemd has passed cannot be used: \(reason)"
        case .tls(let reason), .access(let reason), .audit(let reason): reason
        case .accessLog(let path, let reason):
            """
            the file "\(path)" of access_log_file cannot be opened: \(reason); its folder has to exist, and the server's \
            user needs write access to it
            """
        case .system(let reason): "the server cannot be set up: \(reason)"
        }
    }
}
