internal import HTTP
internal import TokenService

/// The host names under which the administration answers over TCP.
///
/// With DNS rebinding, a page of another site makes its own host name resolve to this machine, and then reads the answers as
/// if they came from its site. The browser sends that name as the host, never an IP address or `localhost`.
struct AdministrationHosts {
    /// `admin.hosts`.
    let names: [String]

    /// Whether to answer a request for this host.
    ///
    /// - Parameter authority: A valid host, with or without a port; empty when the request has none, which no browser sends.
    func contain(_ authority: String) -> Bool {
        let host = Self.host(of: authority)
        if host.isEmpty || host == "localhost" || IPAddress(host) != nil { return true }
        return names.contains { Self.host(of: $0) == host }
    }

    /// The host in lower case, without port, brackets, and the final dot of a fully qualified name.
    private static func host(of authority: String) -> String {
        if authority.hasPrefix("[") { return String(authority.dropFirst().prefix { $0 != "]" }) }
        let host = authority.prefix { $0 != ":" }.lowercased()
        return host.hasSuffix(".") ? String(host.dropLast()) : host
    }
}
