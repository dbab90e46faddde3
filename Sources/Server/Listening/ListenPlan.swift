import Settings

/// Which addresses the server binds itself and which sockets it takes over, given `listen` and the sockets from systemd.
///
/// A passed socket's name selects the protocol spoken on it: `http`, `https`, `proxy` (HTTP behind a PROXY protocol header)
/// or `https-proxy`. `FileDescriptorName=` in the socket's unit sets the name (systemd.socket(5)); without it the name is
/// that of the unit, and the socket speaks the protocol of the `systemd` or `https://systemd` entry in `listen`, or `http`
/// if there is no such entry.
///
/// Without such an entry, the passed sockets replace the entries of `listen` that speak the same protocol, so that the same
/// settings work with and without the socket unit.
struct ListenPlan: Sendable {
    /// The addresses to bind.
    private(set) var bound: [ListenAddress] = []
    /// The sockets to take over, each with the protocol that is spoken on it.
    private(set) var adopted: [(socket: PassedSocket, address: ListenAddress)] = []

    /// Whether certificates are needed.
    var usesTLS: Bool { bound.contains(where: \.isTLS) || adopted.contains { $0.address.isTLS } }

    init(_ listen: [ListenAddress], _ sockets: [PassedSocket]) throws(StartError) {
        let asked = listen.filter { $0.place == .systemd }
        guard asked.isEmpty || !sockets.isEmpty else {
            throw StartError(
                "listen names systemd, but systemd has passed no sockets; start the server through its socket unit")
        }
        for socket in sockets {
            adopted.append((socket, try Self.address(of: socket, among: listen)))
        }
        let replaced = asked.isEmpty ? adopted.map(\.address) : []
        bound = listen.filter { entry in
            entry.place != .systemd && !replaced.contains { $0.speaksLike(entry) }
        }
    }

    /// The names that a socket can have, each with the equivalent entry of `listen`.
    private static let kinds: KeyValuePairs = [
        "http": "systemd",
        "https": "https://systemd",
        "proxy": "systemd?proxy-protocol=required",
        "https-proxy": "https://systemd?proxy-protocol=required",
    ]

    private static func address(
        of socket: PassedSocket, among listen: [ListenAddress]
    ) throws(StartError) -> ListenAddress {
        // A socket without FileDescriptorName= is called "unknown" (sd_listen_fds_with_names(3)) or by its unit's name
        // (systemd.socket(5)).
        if socket.name.isEmpty || socket.name == "unknown" || socket.name.hasSuffix(".socket") {
            return listen.first { $0.place == .systemd } ?? .passed
        }
        guard let kind = kinds.first(where: { $0.key == socket.name }), var address = ListenAddress(kind.value) else {
            throw .passedSockets(
                """
                \(socket) has a name that token-cache does not know; \
                FileDescriptorName= in its unit can be \(kinds.map(\.key).joined(separator: ", "))
                """
            )
        }
        // The name says nothing about clients of a proxy either.
        let likes = listen.filter { $0.speaksLike(address) }
        address.isBehindTLS = !likes.isEmpty && likes.allSatisfy(\.isBehindTLS)
        return address.asking(for: clientCertificate(of: address, among: listen))
    }

    /// Whether the clients of a socket show certificates, which its name does not say.
    ///
    /// As the entries of the same protocol say, or else all entries for TLS; if they differ, the strictest counts.
    private static func clientCertificate(
        of address: ListenAddress, among listen: [ListenAddress]
    ) -> ListenAddress.ClientCertificate? {
        guard address.isTLS else { return nil }
        let likes = listen.filter { $0.speaksLike(address) }
        let passed = likes.filter { $0.place == .systemd }
        let entries = passed.isEmpty ? (likes.isEmpty ? listen : likes) : passed
        let demands = entries.compactMap(\.clientCertificate)
        return demands.contains(.required) ? .required : demands.first
    }
}

extension ListenAddress {
    /// A passed socket without a name: plain HTTP.
    fileprivate static let passed = ListenAddress(place: .systemd)

    fileprivate func speaksLike(_ other: ListenAddress) -> Bool {
        isTLS == other.isTLS && requiresProxyProtocol == other.requiresProxyProtocol
    }
}
