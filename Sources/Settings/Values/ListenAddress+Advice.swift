internal import HTTP

extension ListenAddress {
    /// How to write a listener of which a part is missing: a port alone, a host alone, an IPv6 address without brackets, or
    /// the path of a socket.
    ///
    /// Nil if the text is a listener, or if what it means cannot be told.
    static func advice(_ text: String) -> String? {
        guard ListenAddress(text) == nil else { return nil }
        let scheme = ["http://", "https://"].first { text.hasPrefix($0) } ?? ""
        let rest = text.dropFirst(scheme.count)
        guard !rest.hasPrefix("/") else { return scheme.isEmpty ? "a Unix socket is written unix:\(rest)" : nil }
        if let advice = bracketAdvice(scheme, rest) { return advice }
        if let colon = rest.lastIndex(of: ":"), let port = Int(rest[rest.index(after: colon)...]), port > UInt16.max,
            ListenAddress("\(rest[..<colon]):8080") != nil
        {
            return "a port is a number from 0 to 65535"
        }
        // As other programs write it: 80, :80 or *:80.
        var port = rest
        if port.hasPrefix("*") { port.removeFirst() }
        if port.hasPrefix(":") { port.removeFirst() }
        if !port.isEmpty, ListenAddress("localhost:\(port)") != nil {
            return """
                a port needs an address: write \(scheme)127.0.0.1:\(port) for this machine alone, or \(scheme)0.0.0.0:\(port) and \
                \(scheme)[::]:\(port) for all its IPv4 and IPv6 addresses
                """
        }
        let isHost = rest == "localhost" || rest.contains(".") || rest.hasPrefix("[") && rest.hasSuffix("]")
        guard isHost, ListenAddress("\(rest):8080") != nil else { return nil }
        return "an address needs a port: write \(scheme)\(rest):\(scheme == "https://" ? 8443 : 8080), for example"
    }

    /// How to write an IPv6 address without brackets; in two ways if its end may be a port.
    private static func bracketAdvice(_ scheme: String, _ text: Substring) -> String? {
        guard let colon = text.lastIndex(of: ":"), text.firstIndex(of: ":") != colon else { return nil }
        var listeners: [String] = []
        if IPAddress(String(text[..<colon])) != nil { listeners.append("[\(text[..<colon])]\(text[colon...])") }
        if IPAddress(String(text)) != nil { listeners.append("[\(text)]:\(scheme == "https://" ? 8443 : 8080)") }
        listeners.removeAll { ListenAddress($0) == nil }
        guard !listeners.isEmpty else { return nil }
        return "an IPv6 address is written in brackets: " + listeners.map { scheme + $0 }.joined(separator: " or ")
    }

    /// `advice` for listeners that are for plain HTTP over TCP alone.
    static func plainAdvice(_ text: String) -> String? {
        text.hasPrefix("https://") || text.hasPrefix("/") ? nil : advice(text)
    }
}
