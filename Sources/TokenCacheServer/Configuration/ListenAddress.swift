/// A listener as settings and flags write it: `127.0.0.1:8080`, `http://[::1]:8080`, `localhost:8080`.
package struct ListenAddress: Hashable, Sendable, CustomStringConvertible {
    /// A literal address without brackets, or a name.
    package let host: String
    /// 0 lets the system choose.
    package let port: UInt16

    package static let `default` = ListenAddress(host: "127.0.0.1", port: 8080)

    /// What a listener may look like, for error messages.
    static let allowed = "an address and a port, such as 127.0.0.1:8080, http://[::1]:8080 or 0.0.0.0:80"

    init(host: String, port: UInt16) {
        self.host = host
        self.port = port
    }

    /// Nil when the text is not such a listener.
    package init?(_ text: String) {
        var rest = text[...]
        if rest.hasPrefix("http://") { rest = rest.dropFirst("http://".count) }
        if rest.hasSuffix("/") { rest = rest.dropLast() }
        guard let colon = rest.lastIndex(of: ":"), let port = UInt16(rest[rest.index(after: colon)...]) else {
            return nil
        }
        var host = rest[..<colon]
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
        self.host = String(host)
        self.port = port
    }

    package var description: String {
        host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)"
    }
}
