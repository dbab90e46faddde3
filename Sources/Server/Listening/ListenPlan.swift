internal import Settings

/// Which addresses the server binds itself and which sockets it takes over, from `listen` and what systemd has passed on.
///
/// A passed socket's name says what is spoken on it: `http`, `https`, `proxy` (HTTP behind a PROXY protocol header) or
/// `https-proxy`; that is `FileDescriptorName=` of its unit (systemd.socket(5)). Without that the name is the unit's own,
/// and the socket is what `listen` says: with an entry such as `systemd` or `https://systemd` what that entry is, otherwise
/// `http`.
///
/// Without such an entry, the passed sockets take the place of the entries of their kind: the same settings serve with and
/// without the socket unit.
struct ListenPlan: Sendable {
    /// The addresses to bind.
    private(set) var bound: [ListenAddress] = []
    /// The sockets to take over, each with what is spoken on it.
    private(set) var adopted: [(socket: PassedSocket, address: ListenAddress)] = []

    /// Whether certificates are needed.
    var usesTLS: Bool { bound.contains(where: \.isTLS) || adopted.contains { $0.address.isTLS } }

    init(_ listen: [ListenAddress], _ sockets: [PassedSocket]) throws(StartError) {
        let asked = listen.filter { $0.place == .systemd }
        guard asked.isEmpty || !sockets.isEmpty else { throw .noPassedSockets }
        for socket in sockets {
            adopted.append((socket, try Self.address(of: socket, otherwise: asked.first ?? .passed)))
        }
        let replaced = asked.isEmpty ? adopted.map(\.address) : []
        bound = listen.filter { entry in
            entry.place != .systemd && !replaced.contains { $0.speaksLike(entry) }
        }
    }

    /// The names of sockets, and what an entry of `listen` with the same meaning is.
    private static let kinds: KeyValuePairs = [
        "http": "systemd",
        "https": "https://systemd",
        "proxy": "systemd?proxy-protocol=required",
        "https-proxy": "https://systemd?proxy-protocol=required",
    ]

    private static func address(
        of socket: PassedSocket, otherwise standard: ListenAddress
    ) throws(StartError) -> ListenAddress {
        // Unnamed: sd_listen_fds_with_names(3) has "unknown" for nameless ones, systemd.socket(5) the name of the unit.
        if socket.name.isEmpty || socket.name == "unknown" || socket.name.hasSuffix(".socket") { return standard }
        guard let kind = kinds.first(where: { $0.key == socket.name }), let address = ListenAddress(kind.value) else {
            throw .passedSockets(
                """
                \(socket) has a name that stands for nothing here; \
                FileDescriptorName= in its unit can be \(kinds.map(\.key).joined(separator: ", "))
                """
            )
        }
        return address
    }
}

extension ListenAddress {
    /// A socket that says nothing about itself.
    fileprivate static let passed = ListenAddress(place: .systemd)

    fileprivate func speaksLike(_ other: ListenAddress) -> Bool {
        isTLS == other.isTLS && requiresProxyProtocol == other.requiresProxyProtocol
    }
}
