internal import EventLoop
internal import Glibc
package import Settings
package import System
package import TokenStore

/// Why the server cannot start; the description says what to do.
package enum StartError: Error, CustomStringConvertible {
    case store(StoreOpenError)
    case addressInUse(address: String)
    /// An address cannot be bound: it is not permitted, or fails for the given reason.
    case listen(address: String, _ isPermissionDenied: Bool, String)
    /// A Unix socket cannot be listened on.
    case unixSocket(UnixSocketFault)
    /// An address of `admin.listen` cannot be bound.
    case administration(address: String, reason: String)
    case administrationInUse(address: String)
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
    case accessLog(path: String, SystemError)
    /// What `access` names cannot be used.
    case access(String)
    /// The audit log cannot be opened.
    case audit(String)
    case system(String)

    /// The error if a call failed because the process or the machine lacks descriptors or memory; nil if it failed for another
    /// reason.
    ///
    /// - Parameter address: What was to be listened on; nil if the call was for something else.
    static func shortage(_ error: SystemError, listeningOn address: String? = nil) -> StartError? {
        let text = address.map { "listening on \($0) failed (\(error))" } ?? "\(error)"
        return switch error.code {
        case EMFILE: .system("\(text); raise the limit of open files with ulimit -n or LimitNOFILE=")
        case ENFILE:
            .system("\(text); the whole machine has too many files open: raise that limit with sysctl fs.file-max")
        case ENOMEM, ENOBUFS:
            .system("\(text); the machine or its container is short of memory: free some, or raise MemoryMax=")
        default: nil
        }
    }

    /// Whether the address is in use, possibly by this server itself.
    var isAddressInUse: Bool {
        switch self {
        case .addressInUse, .administrationInUse: true
        case .unixSocket(let fault): fault.reason == .inUse
        default: false
        }
    }

    /// The same error for an address of `admin.listen`.
    package var ofAdministration: StartError {
        switch self {
        case .addressInUse(let address): .administrationInUse(address: address)
        case .listen(let address, _, let reason): .administration(address: address, reason: reason)
        case .resolution(let address, let reason): .administration(address: address, reason: reason)
        default: self
        }
    }

    package var description: String {
        switch self {
        case .store(let error): "\(error)"
        case .addressInUse(let address):
            "\(address) is in use by \(Self.anotherProgram), or listen elsewhere with --listen"
        case .listen(let address, true, _):
            """
            listening on \(address) is not permitted; ports below 1024 need the capability CAP_NET_BIND_SERVICE, \
            others are chosen with --listen
            """
        case .listen(let address, _, let reason):
            "\(address) cannot be listened on: \(reason); choose an address of this machine with --listen"
        case .unixSocket(let fault): "\(fault)"
        case .administrationInUse(let address):
            """
            admin.listen: \(address) is in use by \(Self.anotherProgram), or set admin.listen to another address, or to off
            """
        case .administration(let address, let reason):
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
        case .accessLog(let path, let error):
            """
            the file "\(path)" of access_log_file cannot be opened: \(error.reason)\
            \(error.fileAdvice(otherwise: Self.accessLogAdvice(path)))
            """
        case .system(let reason): "the server cannot be set up: \(reason)"
        }
    }

    private static func accessLogAdvice(_ path: String) -> String {
        // Where systemd passes output on to the journal, these lead to sockets, which nobody can open.
        if ["/dev/stdout", "/dev/stderr"].contains(path) || path.hasPrefix("/proc/self/fd/") {
            return "leave access_log_file empty: that is standard output, also where the journal reads it"
        }
        return switch FileStatus(path)?.kind {
        case .socket: "it is a socket; name a file, or leave the setting empty for standard output"
        case .pipe: "it is a pipe; start its reader first, and give the server's user write access"
        default: "its folder has to exist, and the server's user needs write access to it"
        }
    }

    private static let anotherProgram =
        "another program, perhaps another token-cache; stop that program (as root, ss -ltnp shows it)"
}

/// Two addresses in the settings that cannot both be bound, such as one address written twice, or a wildcard and one of
/// its addresses.
package struct AddressConflict: Error, Hashable, CustomStringConvertible {
    private let first: Entry
    private let second: Entry

    /// An address, and the setting that names it.
    private struct Entry: Hashable {
        let key: String
        let name: String
        /// Whether it stands for all addresses of its family.
        let isWildcard: Bool
    }

    /// Finds the first such pair after resolving host names; nil when there is none.
    ///
    /// Skips names that cannot be resolved: `StartError.resolution` reports these.
    package static func find(listen: [ListenAddress], administration: [ListenAddress]) -> AddressConflict? {
        var seen: [(entry: Entry, address: SocketAddress?)] = []
        for (key, address) in listen.map({ ("listen", $0) }) + administration.map({ ("admin.listen", $0) }) {
            for (name, resolved) in places(of: address) {
                let entry = Entry(key: key, name: name, isWildcard: resolved?.isWildcard ?? false)
                let taken = seen.first { other in
                    if let resolved, let address = other.address { return resolved.conflicts(with: address) }
                    return other.entry.name == name
                }
                if let taken { return AddressConflict(first: taken.entry, second: entry) }
                seen.append((entry, resolved))
            }
        }
        return nil
    }

    private static func places(of address: ListenAddress) -> [(name: String, resolved: SocketAddress?)] {
        switch address.place {
        case .unix(let path): [("unix:\(path)", nil)]
        case .tcp(let host, let port):
            ((try? SocketAddress.resolve(host: host, port: port)) ?? []).map { ("\($0)", $0) }
        case .systemd: []
        }
    }

    package var description: String {
        let once = "each address can be listened on once"
        if first.name == second.name {
            return first.key == second.key
                ? "\(first.key) has \(first.name) twice, perhaps once by name; \(once)"
                : "\(first.key) and \(second.key) both have \(first.name); \(once)"
        }
        let (all, one) = first.isWildcard ? (first, second) : (second, first)
        return "\(all.name) of \(all.key) stands for \(one.name) of \(one.key) as well; \(once)"
    }
}

/// Why the server cannot listen on a Unix socket; the description says what to do.
package struct UnixSocketFault: Error, CustomStringConvertible {
    package enum Reason: Hashable {
        case noFolder
        /// This user has no permission to create files in the folder.
        case closedFolder
        /// The file system is read-only.
        case readOnly
        /// A file that is not a socket has this path.
        case notASocket
        case inUse
        /// The socket exists, but this user has no permission to find out whether a program listens on it.
        case hidden
        /// The owner or group of the file cannot be changed to this one, for this reason.
        case owner(String, reason: String)
        case other(String)
    }

    let path: String
    let reason: Reason

    package init(_ path: String, _ reason: Reason) {
        self.path = path
        self.reason = reason
    }

    /// - Parameters:
    ///   - error: The error that `Listener` threw.
    ///   - path: The socket's path.
    ///   - owner: The user, or `user:group`, that the file was to belong to.
    init(_ error: SystemError, path: String, owner: String) {
        self.path = path
        reason =
            switch (error.call, error.code) {
            case ("chown", _): .owner(owner, reason: error.reason)
            case ("connect", EACCES), ("connect", EPERM): .hidden
            case ("bind", EADDRINUSE): FileStatus(path)?.isSocket == true ? .inUse : .notASocket
            case ("bind", EACCES), ("bind", EPERM): .closedFolder
            case ("bind", EROFS): .readOnly
            case ("bind", ENOENT): .noFolder
            default: .other(error.description)
            }
    }

    private var folder: String { Path.folder(of: path) }

    package var description: String {
        switch reason {
        case .noFolder: "the folder of unix:\(path) is missing; create \(folder), with the server's user as owner"
        case .closedFolder:
            """
            unix:\(path) cannot be created, as this user may not write in \(folder); \
            give the server's user write access to it, or name a path in another folder
            """
        case .readOnly: "unix:\(path) is on a file system that is read-only; name a path elsewhere, such as below /run"
        case .notASocket: "\(path) exists and is not a socket; move it away, or name another path"
        case .inUse:
            "unix:\(path) is in use by another program; stop that program (ss -lxp shows it), or name another path"
        case .hidden:
            """
            unix:\(path) exists, and this user may not see whether a program listens on it; \
            if none does (ss -lxp shows it), remove the file, or name another path
            """
        case .owner(let owner, let reason):
            """
            unix:\(path) cannot be given to \(owner) (\(reason)): only root can change the owner of a file, and the owner \
            can only choose among their own groups; remove ?owner= and use ?mode=0666 in a folder that only the right \
            group may enter, or use the socket unit with SocketUser= and SocketGroup=
            """
        case .other(let reason): "the server cannot listen on unix:\(path): \(reason); name another path"
        }
    }
}
