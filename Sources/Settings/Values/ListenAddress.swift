import HTTP

/// A listener as settings and flags write it, such as `127.0.0.1:8080`, `https://0.0.0.0:8443`,
/// `https://0.0.0.0:8443?client-certificate=optional`, `http://[::1]:8080?proxy-protocol=required&tls=terminated`,
/// `unix:/run/token-cache/http.sock?mode=0660` or `systemd`.
package struct ListenAddress: Hashable, Sendable, CustomStringConvertible {
    package enum Place: Hashable, Sendable {
        /// A literal address without brackets, or a name; port 0 lets the system choose.
        case tcp(host: String, port: UInt16)
        /// The path of the socket's file.
        case unix(path: String)
        /// The sockets that systemd passes on (sd_listen_fds(3)).
        case systemd
    }

    /// Whether clients have to show a certificate, or may.
    package enum ClientCertificate: String, Sendable {
        case required, optional
    }

    package let place: Place
    /// Whether connections begin with a TLS handshake, after the PROXY header if there is one.
    package private(set) var isTLS = false
    /// Whether connections must begin with a PROXY protocol header.
    package private(set) var requiresProxyProtocol = false
    /// Whether the proxies that send the header have clients over TLS only, as far as the header does not say.
    package var isBehindTLS = false
    /// Whether clients show certificates in the TLS handshake; nil if the entry does not say.
    package private(set) var clientCertificate: ClientCertificate?
    /// The permission bits of a Unix socket's file.
    package private(set) var mode: UInt32 = 0o660
    /// The names with a dot that requests may have as their host; only for operators' addresses.
    private(set) var hosts: [String] = []

    static let `default` = ListenAddress(place: .tcp(host: "127.0.0.1", port: 8080))

    /// What is allowed, for error messages.
    static let allowed = """
        an address (0.0.0.0 and [::] for all) and a port, such as 127.0.0.1:8080, http://[::1]:8080 or https://0.0.0.0:8443, a \
        Unix socket by its absolute path of at most 107 bytes, such as unix:/run/token-cache/http.sock, or systemd; with \
        ?proxy-protocol=required (and &tls=terminated), for https with ?client-certificate=required or optional, for \
        a Unix socket with ?mode=0660
        """

    package init(place: Place) {
        self.place = place
    }

    /// Reads a listener; nil if the text does not describe one.
    package init?(_ text: String) {
        let parts = text.split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
        var rest = parts[0]
        for scheme in ["http://", "https://"] where rest.hasPrefix(scheme) {
            rest = rest.dropFirst(scheme.count)
            if rest.hasSuffix("/") { rest = rest.dropLast() }
            isTLS = scheme == "https://"
        }
        guard let place = Self.place(rest) else { return nil }
        self.place = place
        guard parts.count == 2 else { return }
        for option in parts[1].split(separator: "&", omittingEmptySubsequences: false) {
            guard setOption(option) else { return nil }
        }
        // Nobody but a trusted proxy may say how clients come.
        if isBehindTLS && !requiresProxyProtocol { return nil }
    }

    private static func place(_ text: Substring) -> Place? {
        if text == "systemd" { return .systemd }
        if text.hasPrefix("unix:") {
            let path = text.dropFirst("unix:".count)
            return path.hasPrefix("/") && path.utf8.count < 108 ? .unix(path: String(path)) : nil
        }
        guard let colon = text.lastIndex(of: ":"), let port = Self.port(text[text.index(after: colon)...]) else {
            return nil
        }
        var host = text[..<colon]
        if host.hasPrefix("[") && host.hasSuffix("]") {
            host = host.dropFirst().dropLast()
        } else if host.contains(":") {
            // An IPv6 address without brackets: where the port begins would be a guess.
            return nil
        }
        let isHostCharacter = { (character: Character) in
            character.isASCII && (character.isLetter || character.isNumber || "-.:%_".contains(character))
        }
        guard !host.isEmpty, host.allSatisfy(isHostCharacter) else { return nil }
        return .tcp(host: String(host), port: port)
    }

    /// Digits alone: `UInt16` would read a sign as well.
    private static func port(_ text: Substring) -> UInt16? {
        text.allSatisfy { $0.isASCII && $0.isNumber } ? UInt16(text) : nil
    }

    /// Whether a text is a host with an optional port.
    static func isAuthority(_ text: String) -> Bool {
        let bytes = Array(text.utf8)
        return bytes.span.isAuthority(ByteRange(0, bytes.count))
    }

    private mutating func setOption(_ option: Substring) -> Bool {
        let parts = option.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
        guard parts.count == 2 else { return false }
        let isUnix = if case .unix = place { true } else { false }
        switch (parts[0], parts[1]) {
        case ("proxy-protocol", "required"): requiresProxyProtocol = true
        case ("tls", "terminated") where !isTLS: isBehindTLS = true
        case ("client-certificate", let value) where isTLS:
            guard let certificate = ClientCertificate(rawValue: String(value)) else { return false }
            clientCertificate = certificate
        case ("mode", let value) where isUnix:
            guard let bits = UInt32(value, radix: 8), bits <= 0o777 else { return false }
            mode = bits
        case ("host", let name) where !isUnix && !name.contains(":") && Self.isAuthority(String(name)):
            hosts.append(String(name))
        default: return false
        }
        return true
    }

    /// The same address with another rule for clients' certificates.
    package func asking(for certificate: ClientCertificate?) -> ListenAddress {
        var address = self
        address.clientCertificate = certificate
        return address
    }

    /// The same address, also for requests with other hosts.
    func adding(_ hosts: [String]) -> ListenAddress {
        var address = self
        address.hosts += hosts
        return address
    }

    /// Whether the system chooses the port, so that the same text may be listed twice.
    var isChosenBySystem: Bool {
        if case .tcp(_, port: 0) = place { true } else { false }
    }

    /// Whether it is an address and a port for plain HTTP, with no other option than `host`.
    var isPlain: Bool {
        if case .tcp = place { !isTLS && !requiresProxyProtocol } else { false }
    }

    /// The port of the listeners for HTTPS; nil if there are none, or on different ports, or if the system chooses it.
    package static func tlsPort(of listeners: [ListenAddress]) -> UInt16? {
        let ports = Set(
            listeners.filter(\.isTLS).map { listener -> UInt16 in
                if case .tcp(_, let port) = listener.place { port } else { 0 }
            })
        return ports.count == 1 ? ports.first.flatMap { $0 == 0 ? nil : $0 } : nil
    }

    /// The listener as settings have it, without options that have their default.
    package var description: String {
        var options: [String] = []
        if requiresProxyProtocol { options.append("proxy-protocol=required") }
        if isBehindTLS { options.append("tls=terminated") }
        if let clientCertificate { options.append("client-certificate=\(clientCertificate.rawValue)") }
        options += hosts.map { "host=\($0)" }
        if mode != 0o660 { options.append("mode=0\(String(mode, radix: 8))") }
        let scheme = isTLS ? "https://" : ""
        let text =
            switch place {
            case .tcp(let host, let port): host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)"
            case .unix(let path): "unix:\(path)"
            case .systemd: "systemd"
            }
        return scheme + text + (options.isEmpty ? "" : "?" + options.joined(separator: "&"))
    }
}
