package import EventLoop
import Glibc
package import Settings
import System

/// All listeners for clients, and the certificates that they share.
package struct ClientListeners: Sendable {
    package let all: [ClientListener]
    /// Nil without a TLS listener.
    let tls: WatchedCertificates?

    /// Takes over the sockets that the service manager passed, and binds the other addresses of `listen`.
    package static func open(
        _ settings: Settings, _ passedSockets: [PassedSocket]
    ) throws(StartError) -> ClientListeners {
        let plan = try ListenPlan(settings.listen, passedSockets)
        let tls = plan.usesTLS ? try certificates(settings) : nil
        var listeners: [ClientListener] = []
        for (socket, address) in plan.adopted {
            let clients = TLSClientAuthentication(of: address, among: settings.listen)
            listeners.append(try ClientListener.adopt(socket, as: address, tls: tls, clients: clients))
        }
        for address in plan.bound {
            let clients = TLSClientAuthentication(of: address, among: settings.listen)
            listeners += try ClientListener.open(address, tls: tls, clients: clients)
        }
        for index in listeners.indices { listeners[index].number = index }
        return ClientListeners(all: listeners, tls: tls)
    }

    /// Loads the certificates of all `https://` listeners.
    static func certificates(_ settings: Settings) throws(StartError) -> WatchedCertificates {
        guard !settings.tls.certificates.isEmpty else {
            throw .passedSockets("one is for https, but tls.certificate and tls.private_key name no files")
        }
        do {
            return try WatchedCertificates(TLSFiles(settings))
        } catch {
            throw StartError("\(error)")
        }
    }
}

extension ClientListeners {
    /// Fails if a server could not listen, whatever other programs do; does not listen itself.
    ///
    /// Checks that the machine has the addresses, that Unix sockets can be made in their folders, and the certificates.
    ///
    /// - Parameter isAwaited: Whether a file or its folder is made only when the service starts, so that it cannot be checked yet.
    /// - Returns: Whose clients' certificates are trusted, if any, and warnings about certificates and authorities.
    package static func examine(
        _ settings: Settings, except isAwaited: (String) -> Bool
    ) throws(StartError) -> (trust: String?, warnings: [String]) {
        for address in settings.listen {
            if case .unix(let path) = address.place, isAwaited(path) { continue }
            try examine(address)
        }
        for address in settings.admin.listen {
            do {
                try examine(address)
            } catch {
                throw error.ofAdministration
            }
        }
        // Even if no entry of `listen` uses TLS: systemd may pass a socket that does.
        return settings.tls.certificates.isEmpty ? (nil, []) : try examineCertificates(settings, except: isAwaited)
    }

    private static func examineCertificates(
        _ settings: Settings, except isAwaited: (String) -> Bool
    ) throws(StartError) -> (trust: String?, warnings: [String]) {
        let files = TLSFiles(settings)
        var warnings: [String?] = []
        do {
            for pair in files.pairs where !isAwaited(pair.certificateChain) && !isAwaited(pair.privateKey) {
                warnings.append(try WatchedCertificates.examine(pair).warning())
            }
            var authorities: TLSClientAuthorities?
            if let path = files.clientAuthorities, !isAwaited(path) {
                authorities = try WatchedCertificates.examine(authorities: path)
            }
            return (authorities?.trust, (warnings + [authorities?.warning()]).compactMap(\.self))
        } catch {
            throw StartError("\(error)")
        }
    }

    /// Why some of the TCP addresses, with their ports, cannot be listened on at the moment.
    ///
    /// Not to be called while the server runs, as it has them in use itself.
    package static func occupied(_ settings: Settings) -> [StartError] {
        func fault(_ address: ListenAddress) -> StartError? {
            guard case .tcp = address.place else { return nil }
            do {
                try examine(address, withPort: true)
                return nil
            } catch {
                return error
            }
        }
        return settings.listen.compactMap(fault) + settings.admin.listen.compactMap { fault($0)?.ofAdministration }
    }

    /// - Parameter withPort: Whether to try the port as well, which another program or the running server may be using.
    private static func examine(_ address: ListenAddress, withPort: Bool = false) throws(StartError) {
        switch address.place {
        case .systemd: return
        case .tcp(let host, let port):
            for resolved in try ClientListener.resolve(host, withPort ? port : 0, address) {
                do {
                    try Listener.tryBinding(resolved)
                } catch {
                    throw .listening(on: "\(address)", error)
                }
            }
        case .unix(let path):
            try examine(unixPath: path)
        }
    }

    /// Fails if no socket could be made at the path; changes nothing.
    private static func examine(unixPath path: String) throws(StartError) {
        if let found = FileStatus(path, followingLinks: false), !found.isSocket {
            throw .listening(onSocketAt: path, SystemError(call: "bind", code: EADDRINUSE))
        }
        guard unsafe access(Path.folder(of: path), W_OK | X_OK) == 0 else {
            throw .listening(onSocketAt: path, .last("bind"))
        }
    }
}

/// A listener, and the protocols that its connections speak: PROXY protocol, TLS or plain HTTP.
package struct ClientListener: Sendable {
    package let listener: Listener
    let requiresProxyProtocol: Bool
    /// Nil for plain HTTP.
    let tls: WatchedCertificates?
    let clientAuthentication: TLSClientAuthentication
    /// Whether clients come over TLS to the proxy that sends the PROXY header, unless that says otherwise.
    var isBehindTLS = false
    /// The place among all listeners, by which the access log finds its name.
    var number = 0

    /// The address with its scheme, for the log.
    var name: String {
        if tls != nil { return "https://\(listener.name)" }
        return listener.name.hasPrefix("unix") ? listener.name : "http://\(listener.name)"
    }

    /// Opens the listeners of one entry of `listen`; a host name may resolve to several addresses.
    ///
    /// - Parameters:
    ///   - address: The entry.
    ///   - tls: Nil if no entry is for TLS.
    ///   - clients: Whether clients show certificates.
    package static func open(
        _ address: ListenAddress, tls: WatchedCertificates?, clients: TLSClientAuthentication
    ) throws(StartError) -> [ClientListener] {
        var listeners: [Listener] = []
        switch address.place {
        case .tcp(let host, let port):
            for resolved in try resolve(host, port, address) {
                do {
                    listeners.append(try Listener(binding: resolved))
                } catch {
                    throw .listening(on: "\(resolved)", error)
                }
            }
        case .unix(let path):
            do {
                listeners.append(try Listener(unixPath: path, mode: address.mode))
            } catch {
                throw .listening(onSocketAt: path, error)
            }
        case .systemd:
            preconditionFailure("passed sockets are taken over by adopt")
        }
        let context = address.isTLS ? tls : nil
        return listeners.map {
            ClientListener(
                listener: $0, requiresProxyProtocol: address.requiresProxyProtocol, tls: context,
                clientAuthentication: clients, isBehindTLS: address.isBehindTLS
            )
        }
    }

    /// Takes over a listening socket that systemd has passed.
    static func adopt(
        _ socket: PassedSocket, as address: ListenAddress, tls: WatchedCertificates?, clients: TLSClientAuthentication
    ) throws(StartError) -> ClientListener {
        guard let listener = Listener(adopting: socket.descriptor) else {
            throw .passedSockets(
                """
                \(socket) is not open, or is no stream socket that listens; a socket unit needs ListenStream= and must not \
                have Accept=yes
                """)
        }
        return ClientListener(
            listener: listener, requiresProxyProtocol: address.requiresProxyProtocol,
            tls: address.isTLS ? tls : nil, clientAuthentication: clients, isBehindTLS: address.isBehindTLS)
    }

    static func resolve(
        _ host: String, _ port: UInt16, _ address: ListenAddress
    ) throws(StartError) -> [SocketAddress] {
        do {
            return try SocketAddress.resolve(host: host, port: port)
        } catch {
            throw StartError("the address \(address) cannot be resolved: \(error)")
        }
    }
}

extension TLSClientAuthentication {
    /// Whether the clients of a listener show certificates, as its entry says.
    ///
    /// If no entry says so, all clients show one where there are authorities.
    ///
    /// - Parameters:
    ///   - address: The listener's entry.
    ///   - listen: All entries.
    init(of address: ListenAddress, among listen: [ListenAddress]) {
        switch address.clientCertificate {
        case .required: self = .required
        case .optional: self = .optional
        case nil: self = listen.contains { $0.clientCertificate != nil } ? .none : .requiredByAuthorities
        }
    }
}
