package import EventLoop
internal import Glibc
package import Settings
internal import System

/// A listener, and the protocols that its connections speak: PROXY protocol, TLS or plain HTTP.
package struct ClientListener: Sendable {
    package let listener: Listener
    let requiresProxyProtocol: Bool
    /// Nil for plain HTTP.
    let tls: TLSContext?
    let clientAuthentication: TLSClientAuthentication
    /// Whether systemd has passed the socket, maybe in the place of entries of `listen` that speak the same protocol.
    var isPassed = false
    /// The place among all listeners, by which its requests are counted.
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
        _ address: ListenAddress, tls: TLSContext?, clients: TLSClientAuthentication
    ) throws(StartError) -> [ClientListener] {
        var listeners: [Listener] = []
        switch address.place {
        case .tcp(let host, let port):
            for resolved in try resolve(host, port, address) {
                listeners.append(
                    try opening(resolved) { () throws(SystemError) in try Listener(binding: resolved) })
            }
        case .unix(let path):
            let owner = try address.owner.map { (name) throws(StartError) in try Self.owner(name, path) }
            do throws(SystemError) {
                listeners.append(try Listener(unixPath: path, mode: address.mode, owner: owner))
            } catch {
                throw StartError.shortage(error, listeningOn: "unix:\(path)")
                    ?? .unixSocket(UnixSocketFault(error, path: path, owner: address.owner ?? ""))
            }
        case .systemd:
            preconditionFailure("passed sockets are taken over by adopt")
        }
        let context = address.isTLS ? tls : nil
        return listeners.map {
            ClientListener(
                listener: $0, requiresProxyProtocol: address.requiresProxyProtocol, tls: context,
                clientAuthentication: clients
            )
        }
    }

    /// Takes over a listening socket that systemd has passed.
    static func adopt(
        _ socket: PassedSocket, as address: ListenAddress, tls: TLSContext?, clients: TLSClientAuthentication
    ) throws(StartError) -> ClientListener {
        do throws(Listener.AdoptionError) {
            let listener = try Listener(adopting: FileDescriptor(owning: socket.descriptor))
            return ClientListener(
                listener: listener, requiresProxyProtocol: address.requiresProxyProtocol,
                tls: address.isTLS ? tls : nil, clientAuthentication: clients, isPassed: true
            )
        } catch {
            throw .passedSockets(
                "\(socket) \(error); a socket unit needs ListenStream= and must not have Accept=yes"
            )
        }
    }

    private static func opening(
        _ address: SocketAddress, _ open: () throws(SystemError) -> Listener
    ) throws(StartError) -> Listener {
        do throws(SystemError) {
            return try open()
        } catch {
            let name = "\(address)"
            if error.isAddressInUse { throw .addressInUse(address: name) }
            throw StartError.shortage(error, listeningOn: name)
                ?? .listen(address: name, error.isPermissionDenied, error.description)
        }
    }

    static func resolve(
        _ host: String, _ port: UInt16, _ address: ListenAddress
    ) throws(StartError) -> [SocketAddress] {
        do throws(SocketAddress.ResolutionError) {
            return try SocketAddress.resolve(host: host, port: port)
        } catch {
            throw .resolution(address: "\(address)", reason: error.reason)
        }
    }

    /// Looks up the numeric ids of `user` or `user:group`; without a group, returns the user's primary group.
    package static func owner(_ name: String, _ path: String) throws(StartError) -> (user: UInt32, group: UInt32) {
        let parts = name.split(separator: ":", maxSplits: 1).map(String.init)
        guard let user = unsafe getpwnam(parts[0]) else { throw .owner(path: path, name: parts[0]) }
        let (userID, groupID) = unsafe (user.pointee.pw_uid, user.pointee.pw_gid)
        guard parts.count == 2 else { return (userID, groupID) }
        guard let group = unsafe getgrnam(parts[1]) else { throw .owner(path: path, name: parts[1]) }
        return (userID, unsafe group.pointee.gr_gid)
    }
}
