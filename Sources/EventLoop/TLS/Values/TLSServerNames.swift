/// Finds the certificate for a name: exact names before wildcards, earlier certificates before later ones.
struct TLSServerNames {
    private var exact: [String: Int] = [:]
    /// Keyed by what follows `*.`.
    private var wildcards: [String: Int] = [:]

    /// Adds a name as certificates have them, for example `example.com` or `*.example.com`.
    mutating func add(_ name: String, at index: Int) {
        let name = name.lowercased()
        if name.hasPrefix("*.") {
            let rest = String(name.dropFirst(2))
            wildcards[rest] = wildcards[rest] ?? index
        } else {
            exact[name] = exact[name] ?? index
        }
    }

    /// The certificate for a name that a client asks for.
    ///
    /// A wildcard stands for exactly one label, the leftmost (RFC 9525, section 6.3).
    func index(for asked: String) -> Int? {
        var name = asked.lowercased()
        // Complete names end with a dot, as a client may have them (RFC 1034, section 3.1), and certificates do not.
        if name.last == "." { name.removeLast() }
        if let index = exact[name] { return index }
        guard let dot = name.firstIndex(of: "."), dot != name.startIndex else { return nil }
        return wildcards[String(name[name.index(after: dot)...])]
    }
}
