internal import EventLoop
internal import Glibc
internal import Server
internal import Settings
internal import System

/// Whether what the settings name can be listened on, or is already by the server itself.
enum ListenerCheck {
    static func findings(_ settings: Settings, _ server: RunningServer) -> [Finding] {
        clashes(settings, server)
            + settings.listen.flatMap { findings($0, "listen", server, server.facts?.listeners ?? []) }
            + settings.admin.listen.flatMap {
                findings($0, "admin.listen", server, server.facts?.administration ?? [])
            }
    }

    static let topic = "Listeners"

    private static func clashes(_ settings: Settings, _ server: RunningServer) -> [Finding] {
        // A running one may have passed sockets instead of some of them.
        guard server.facts == nil,
            let clash = AddressClash.find(listen: settings.listen, administration: settings.admin.listen)
        else { return [] }
        return [.problem(topic, clash)]
    }

    private static func findings(
        _ address: ListenAddress, _ key: String, _ server: RunningServer, _ own: [String]
    ) -> [Finding] {
        switch address.place {
        case .systemd: return [.ok(topic, "\(key): systemd passes its sockets on when it starts the server")]
        case .unix(let path): return UnixSocketCheck.findings(path, owner: address.owner, key, server, own)
        case .tcp(let host, let port):
            guard port != 0 else { return [.ok(topic, "\(key): the system chooses the port of \(address)")] }
            do throws(SocketAddress.ResolutionError) {
                return try SocketAddress.resolve(host: host, port: port).map { tcp($0, key, server, own) }
            } catch {
                return [
                    .problem(
                        topic, "\(key): \(address) is not known: \(error.reason)", "name an address of this machine")
                ]
            }
        }
    }

    private static func tcp(_ address: SocketAddress, _ key: String, _ server: RunningServer, _ own: [String])
        -> Finding
    {
        if own.contains(where: { $0.hasSuffix("://\(address)") }) {
            return .ok(topic, "\(key): the running server has \(address)")
        }
        do throws(SystemError) {
            try Listener.tryBinding(address)
            guard server.facts != nil else { return .ok(topic, "\(key): \(address) can be had") }
            return .warning(
                topic, "\(key): the running server is not on \(address)", "restart it, as the settings have changed")
        } catch {
            return fault(error, "\(address)", key, server)
        }
    }

    private static func fault(_ error: SystemError, _ name: String, _ key: String, _ server: RunningServer) -> Finding {
        let another = "stop that one (ss -ltnp shows it), or set \(key) to another address"
        if error.isAddressInUse {
            // Who it is cannot be seen from here.
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
                topic, "\(key): \(name) is not for this user",
                """
                ports below 1024 need CAP_NET_BIND_SERVICE: use the socket unit, or give it to the service as the comment in \
                its unit says
                """
            )
        }
        return .problem(topic, "\(key): \(name) cannot be had: \(error.reason)", "name an address of this machine")
    }
}
