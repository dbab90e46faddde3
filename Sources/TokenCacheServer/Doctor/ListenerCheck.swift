internal import EventLoop
internal import Glibc

/// Whether what the settings name can be listened on, or is already by the server itself.
enum ListenerCheck {
    static func findings(_ settings: Settings, _ server: RunningServer) -> [Finding] {
        settings.listen.flatMap { findings($0, "listen", server, server.facts?.listeners ?? []) }
            + settings.admin.listen.flatMap {
                findings($0, "admin.listen", server, server.facts?.administration ?? [])
            }
    }

    private static let topic = "Listeners"

    private static func findings(
        _ address: ListenAddress, _ key: String, _ server: RunningServer, _ own: [String]
    ) -> [Finding] {
        switch address.place {
        case .systemd: return [.ok(topic, "\(key): systemd passes its sockets on when it starts the server")]
        case .unix(let path): return [unix(path, key, server, own)]
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
                "the server's user needs CAP_NET_BIND_SERVICE for ports below 1024, which the systemd unit gives"
            )
        }
        return .problem(topic, "\(key): \(name) cannot be had: \(error.reason)", "name an address of this machine")
    }

    private static func unix(_ path: String, _ key: String, _ server: RunningServer, _ own: [String]) -> Finding {
        if own.contains(where: { $0.hasSuffix("unix:\(path)") }) {
            return .ok(topic, "\(key): the running server has unix:\(path)")
        }
        guard let found = FileStatus(path) else {
            let folder = FileStatus.folder(of: path)
            guard FileStatus(folder) != nil else {
                return .problem(
                    topic, "\(key): the folder of unix:\(path) is missing",
                    "make \(folder), with the server's user as owner")
            }
            return .ok(topic, "\(key): unix:\(path) can be had")
        }
        guard found.isSocket else {
            return .problem(topic, "\(key): \(path) is there and is no socket", "move it away, or name another path")
        }
        do throws(BlockingSocket.Failure) {
            _ = try BlockingSocket(unixPath: path, patienceInSeconds: HealthProbe.patienceInSeconds)
        } catch {
            // Somebody may well be listening.
            if error.code == EACCES || error.code == EPERM {
                return .warning(
                    topic, "\(key): unix:\(path) is not for this user",
                    "run token-cache doctor as root or as the server's user"
                )
            }
            return .ok(topic, "\(key): unix:\(path) is left over, and will be replaced")
        }
        return fault(SystemError(call: "bind", code: EADDRINUSE), "unix:\(path)", key, server)
    }
}
