package import EventLoop
internal import Glibc
package import Settings
internal import System

extension ClientListeners {
    /// Fails if listening is bound to fail, whatever other programs do; does not listen anywhere itself.
    ///
    /// Looks at addresses that exclude each other or that this machine does not have, folders of Unix sockets, and certificates.
    ///
    /// - Parameter isAwaited: Whether a file or its folder is made only when the service starts, so that it cannot be checked yet.
    /// - Returns: The authorities for clients' certificates; nil if there are none, or none that could be checked.
    package static func examine(
        _ settings: Settings, except isAwaited: (String) -> Bool
    ) throws(StartError) -> TLSClientAuthorities? {
        if let conflict = AddressConflict.find(listen: settings.listen, administration: settings.admin.listen) {
            throw .conflict(conflict)
        }
        for address in settings.listen {
            if case .unix(let path) = address.place, isAwaited(path) { continue }
            try examine(address)
        }
        for address in settings.admin.listen {
            do throws(StartError) {
                try examine(address)
            } catch {
                throw error.ofAdministration
            }
        }
        // Even if no entry of `listen` uses TLS: systemd may pass a socket that does.
        return settings.tls.certificates.isEmpty ? nil : try examineCertificates(settings, except: isAwaited)
    }

    private static func examineCertificates(
        _ settings: Settings, except isAwaited: (String) -> Bool
    ) throws(StartError) -> TLSClientAuthorities? {
        let files = TLSFiles(settings)
        do throws(TLSConfigurationError) {
            for pair in files.pairs where !isAwaited(pair.certificateChain) && !isAwaited(pair.privateKey) {
                _ = try TLSContext.examine(pair)
            }
            guard let authorities = files.clientAuthorities, !isAwaited(authorities) else { return nil }
            return try TLSContext.examine(authorities: authorities)
        } catch {
            throw .tls("\(error)")
        }
    }

    private static func examine(_ address: ListenAddress) throws(StartError) {
        switch address.place {
        case .systemd: return
        case .tcp(let host, _):
            // Without its port, which another program or the running server may be using.
            for resolved in try ClientListener.resolve(host, 0, address) { try examine(resolved, named: "\(address)") }
        case .unix(let path):
            if let owner = address.owner { _ = try ClientListener.owner(owner, path) }
            try examine(unixPath: path)
        }
    }

    private static func examine(_ address: SocketAddress, named name: String) throws(StartError) {
        do throws(SystemError) {
            try Listener.tryBinding(address)
        } catch {
            throw StartError.shortage(error, listeningOn: name) ?? .listen(address: name, false, error.description)
        }
    }

    /// Fails if no socket could be made at the path; changes nothing.
    private static func examine(unixPath path: String) throws(StartError) {
        if let found = FileStatus(path, followingLinks: false), !found.isSocket {
            throw .unixSocket(UnixSocketFault(path, .notASocket))
        }
        guard unsafe access(Path.folder(of: path), W_OK | X_OK) != 0 else { return }
        switch errno {
        case ENOENT, ENOTDIR: throw .unixSocket(UnixSocketFault(path, .noFolder))
        case EROFS: throw .unixSocket(UnixSocketFault(path, .readOnly))
        default: throw .unixSocket(UnixSocketFault(path, .closedFolder))
        }
    }
}
