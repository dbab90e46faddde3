internal import HTTP
internal import TokenService

/// Under which names the administration is asked for over TCP.
///
/// A page of another site can have its own name lead to this machine (DNS rebinding), and then read what is answered as if
/// it were its own. It cannot choose the address in the place of the name.
struct AdministrationHosts {
    /// `admin.hosts`.
    let names: [String]

    /// Whether a request's host, with or without a port, is one to be answered.
    ///
    /// - Parameter authority: Valid; empty when the request names none, as no browser does.
    func contain(_ authority: String) -> Bool {
        let host = Self.host(of: authority)
        if host.isEmpty || host == "localhost" || IPAddress(host) != nil { return true }
        return names.contains { Self.host(of: $0) == host }
    }

    /// The host in lower case, without port, brackets, and the dot that ends a full name.
    private static func host(of authority: String) -> String {
        if authority.hasPrefix("[") { return String(authority.dropFirst().prefix { $0 != "]" }) }
        let host = authority.prefix { $0 != ":" }.lowercased()
        return host.hasSuffix(".") ? String(host.dropLast()) : host
    }
}
