internal import EventLoop
internal import Glibc
internal import Server
internal import Settings
internal import System

/// Checks that the server can listen on the addresses of the settings, or already does.
enum ListenerCheck {
    static func findings(_ settings: Settings, _ server: RunningServer) -> [Finding] {
        conflicts(settings, server)
            + settings.listen.flatMap { findings($0, "listen", server, server.facts?.listeners ?? []) }
            + settings.admin.listen.flatMap {
                findings($0, "admin.listen", server, server.facts?.administration ?? [])
            }
    }

    static let topic = "Listeners"

    private static func conflicts(_ settings: Settings, _ server: RunningServer) -> [Finding] {
        // A running server may use passed sockets in the place of some addresses.
        guard server.facts == nil,
            let conflict = AddressConflict.find(listen: settings.listen, administration: settings.admin.listen)
        else { return [] }
        return [.problem(topic, conflict)]
    }

    private static func findings(
        _ address: ListenAddress, _ key: String, _ server: RunningServer, _ own: [String]
    ) -> [Finding] {
        switch address.place {
        case .systemd: return [.ok(topic, "\(key): systemd passes its sockets when it starts the server")]
        case .unix(let path): return UnixSocketCheck.findings(path, owner: address.owner, key, server, own)
        case .tcp(let host, let port):
            guard port != 0 else { return [.ok(topic, "\(key): the system chooses the port of \(address)")] }
            do throws(SocketAddress.ResolutionError) {
                return try SocketAddress.resolve(host: host, port: port).map { tcp($0, key, server, own) }
            } catch {
                return [
                    .problem(
                        topic, "\(key): \(address) cannot be resolved: \(error.reason)",
                        "name an address of this machine")
                ]
            }
        }
    }

    private static func tcp(_ address: SocketAddress, _ key: String, _ server: RunningServer, _ own: [String])
        -> Finding
    {
        if own.contains(where: { $0.hasSuffix("://\(address)") }) {
            return .ok(topic, "\(key): the running server listens on \(address)")
        }
        do throws(SystemError) {
            try Listener.tryBinding(address)
            guard server.facts != nil else { return .ok(topic, "\(key): \(address) is free") }
            return .warning(
                topic, "\(key): the running server does not listen on \(address)",
                "restart it, as the settings have changed")
        } catch {
            return fault(error, "\(address)", key, server)
        }
    }

    private static func fault(_ error: SystemError, _ name: String, _ key: String, _ server: RunningServer) -> Finding {
        let another = "stop that program (ss -ltnp shows it), or set \(key) to another address"
        if error.isAddressInUse {
            // This user cannot see whether the server itself uses the address.
            if case .hidden = server {
                return .warning(
                    topic, "\(key): \(name) is in use, by the running server or by another program",
                    "run token-cache doctor as root or as the server's user"
                )
            }
            return .problem(topic, "\(key): \(name) is in use by another program", another)
        }
        if error.isPermissionDenied {
            return .warning(
                topic, "\(key): this user may not listen on \(name)",
                """
                ports below 1024 need CAP_NET_BIND_SERVICE: use the socket unit, or give the service this capability as the \
                comment in its unit says
                """
            )
        }
        return .problem(topic, "\(key): listening on \(name) fails: \(error.reason)", "name an address of this machine")
    }
}
