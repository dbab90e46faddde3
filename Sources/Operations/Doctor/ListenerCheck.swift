internal import EventLoop
internal import Glibc
internal import Server
internal import Settings
internal import System

/// Checks that the server can listen on the addresses of the settings, or already does.
struct ListenerCheck {
    private let rights: Rights
    private let server: RunningServer

    init(_ rights: Rights, _ server: RunningServer) {
        self.rights = rights
        self.server = server
    }

    func findings(_ settings: Settings) -> [Finding] {
        conflicts(settings)
            + settings.listen.flatMap { address in
                replacement(of: address, settings).map { [$0] }
                    ?? findings(address, "listen", server.facts?.listeners ?? [])
            }
            + settings.admin.listen.flatMap { findings($0, "admin.listen", server.facts?.administration ?? []) }
    }

    static let topic = "Listeners"

    private func conflicts(_ settings: Settings) -> [Finding] {
        // A running server may use passed sockets in the place of some addresses.
        guard server.facts == nil,
            let conflict = AddressConflict.find(listen: settings.listen, administration: settings.admin.listen)
        else { return [] }
        return [.problem(Self.topic, conflict)]
    }

    /// Names the socket of systemd's that the running server uses in the place of an address; nil if there is none.
    private func replacement(of address: ListenAddress, _ settings: Settings) -> Finding? {
        // With such an entry, the other ones keep their places.
        guard !settings.listen.contains(where: { $0.place == .systemd }) else { return nil }
        let passed = server.facts?.passed?.first {
            $0.isTLS == address.isTLS && $0.requiresProxyProtocol == address.requiresProxyProtocol
        }
        return passed.map {
            .ok(Self.topic, "listen: a socket of systemd (\($0.name)) takes the place of \(address)")
        }
    }

    private func findings(_ address: ListenAddress, _ key: String, _ own: [String]) -> [Finding] {
        switch address.place {
        case .systemd: return [.ok(Self.topic, "\(key): systemd passes its sockets when it starts the server")]
        case .unix(let path): return UnixSocketCheck(rights, server).findings(path, owner: address.owner, key, own)
        case .tcp(let host, let port):
            guard port != 0 else { return [.ok(Self.topic, "\(key): the system chooses the port of \(address)")] }
            do throws(SocketAddress.ResolutionError) {
                return try SocketAddress.resolve(host: host, port: port).map { tcp($0, key, own) }
            } catch {
                return [
                    .problem(
                        Self.topic, "\(key): \(address) cannot be resolved: \(error.reason)",
                        "name an address of this machine")
                ]
            }
        }
    }

    private func tcp(_ address: SocketAddress, _ key: String, _ own: [String]) -> Finding {
        if own.contains(where: { $0.hasSuffix("://\(address)") }) {
            return .ok(Self.topic, "\(key): the running server listens on \(address)")
        }
        do throws(SystemError) {
            try Listener.tryBinding(address)
            guard server.facts != nil else { return .ok(Self.topic, "\(key): \(address) is free") }
            return .warning(
                Self.topic, "\(key): the running server does not listen on \(address)",
                "restart it, as the settings have changed")
        } catch {
            return fault(error, address, key)
        }
    }

    private func fault(_ error: SystemError, _ address: SocketAddress, _ key: String) -> Finding {
        let name = "\(address)"
        if error.isAddressInUse {
            // This user cannot see whether the server itself uses the address.
            if case .hidden = server {
                return .warning(
                    Self.topic, "\(key): \(name) is in use, by the running server or by another program",
                    "run token-cache doctor as the server's user"
                )
            }
            return .problem(
                Self.topic, "\(key): \(name) is in use by another program, perhaps another token-cache",
                "stop that program (as root, ss -ltnp shows it), or set \(key) to another address")
        }
        if error.isPermissionDenied {
            let advice = """
                ports below 1024 need CAP_NET_BIND_SERVICE: use the socket unit, or give the service this capability as the \
                comment in its unit says
                """
            return rights.refusal(Self.topic, "listen on \(name), as \(key) says", advice)
        }
        return .problem(
            Self.topic, "\(key): listening on \(name) fails: \(error.reason)",
            error.code == EADDRNOTAVAIL
                ? "set \(key) to an address that `ip address` shows" : "name an address of this machine")
    }
}

/// Checks that the server can create a Unix socket at the path in the settings, or already listens there.
struct UnixSocketCheck {
    private let rights: Rights
    private let server: RunningServer
    private static let topic = ListenerCheck.topic

    init(_ rights: Rights, _ server: RunningServer) {
        self.rights = rights
        self.server = server
    }

    func findings(_ path: String, owner: String?, _ key: String, _ own: [String]) -> [Finding] {
        if own.contains(where: { $0.hasSuffix("unix:\(path)") }) {
            return [.ok(Self.topic, "\(key): the running server listens on unix:\(path)")]
        }
        if let finding = existingFile(path, key) ?? folder(path, key) { return [finding] }
        let state = FileStatus(path) == nil ? "can be created" : "is left over from an ended program, and is replaced"
        return [owner.flatMap { ownership($0, path, key) } ?? .ok(Self.topic, "\(key): unix:\(path) \(state)")]
    }

    /// Reports a file at the path that the server cannot replace; nil if there is none.
    private func existingFile(_ path: String, _ key: String) -> Finding? {
        guard let found = FileStatus(path) else { return nil }
        guard found.isSocket else { return problem(key, UnixSocketFault(path, .notASocket)) }
        do throws(BlockingSocket.Failure) {
            _ = try BlockingSocket(unixPath: path, timeoutInSeconds: HealthProbe.timeoutInSeconds)
        } catch {
            // Without permission to connect, a program may be listening all the same.
            guard error.code == EACCES || error.code == EPERM else { return nil }
            return rights.refusal(
                Self.topic, "connect to unix:\(path) of \(key), which exists already",
                "if no program listens on it (ss -lxp shows it), remove the file; otherwise name another path")
        }
        // This user cannot see whether the server itself uses the socket.
        if case .hidden = server {
            return .warning(
                Self.topic, "\(key): unix:\(path) is in use, by the running server or by another program",
                "run token-cache doctor as the server's user")
        }
        return problem(key, UnixSocketFault(path, .inUse))
    }

    /// Reports a folder in which the socket cannot be created; nil if it can.
    private func folder(_ path: String, _ key: String) -> Finding? {
        let folder = Path.folder(of: path)
        guard unsafe access(folder, W_OK | X_OK) != 0 else { return nil }
        switch errno {
        case ENOENT: return problem(key, UnixSocketFault(path, .noFolder))
        case EROFS: return problem(key, UnixSocketFault(path, .readOnly))
        case EACCES, EPERM:
            return rights.refusal(
                Self.topic, "create unix:\(path) in \(folder), as \(key) says",
                rights.advice(for: path, "give it write access to \(folder), or name a path in another folder"))
        case let code:
            let reason = SystemError.reason(code)
            return problem(key, UnixSocketFault(path, .other(reason)))
        }
    }

    /// Reports an owner that the socket's file cannot be given to; nil if it can.
    private func ownership(_ name: String, _ path: String, _ key: String) -> Finding? {
        let owner: (user: UInt32, group: UInt32)
        do throws(StartError) {
            owner = try ClientListener.owner(name, path)
        } catch {
            return .problem(Self.topic, "\(key): \(error)", "create that user or group, or name another one")
        }
        let isOwn = owner.user == geteuid() && (owner.group == getegid() || Self.ownGroups.contains(owner.group))
        guard geteuid() != 0 && !isOwn else { return nil }
        return rights.refusal(
            Self.topic, "give unix:\(path) to \(name), as \(key) says and as only root can",
            "remove ?owner=, or use the socket unit with SocketUser= and SocketGroup="
        )
    }

    private static var ownGroups: [gid_t] {
        var groups = [gid_t](repeating: 0, count: 1 << 16)
        let count = unsafe getgroups(Int32(groups.count), &groups)
        return Array(groups.prefix(max(0, Int(count))))
    }

    private func problem(_ key: String, _ fault: UnixSocketFault) -> Finding {
        let finding = Finding.problem(Self.topic, fault)
        return .problem(Self.topic, "\(key): \(finding.text)", finding.advice)
    }
}
