internal import HTTP

/// The URL of a database, in the form of PostgreSQL's client library, libpq
/// (postgresql.org/docs/current/libpq-connect.html, section 34.1.1.2).
///
/// It is read as libpq reads it, so far as the settings depend on it; the store gives the text itself to libpq. Unlike libpq it
/// refuses passwords, and an @ after the hosts, which would be a part of a password that was taken for a host's name.
package struct StoreURL: Hashable, Sendable {
    /// A machine that may have the database.
    package struct Host: Hashable, Sendable {
        /// A name, an address, or for a Unix socket its folder; empty for libpq's own choice.
        package let name: String
        /// Nil for libpq's own choice.
        package let port: Int?
    }

    /// Nil if the text names none.
    package let user: String?
    /// Empty if the text names none.
    package let hosts: [Host]
    /// Nil if the text names none.
    package let database: String?
    /// The query, decoded; of several values of a name the last one.
    package let parameters: [String: String]

    package init(_ text: String) throws(Fault) {
        var rest = try Self.withoutScheme(text)
        guard rest.allSatisfy({ $0 > 0x20 && $0 != 0x7f }) else { throw .blank }
        user = try Self.takeUser(from: &rest)
        guard !rest.contains(UInt8(ascii: "@")) else { throw .at }
        var (names, ports) = try Self.takeHosts(from: &rest)
        let query = rest.firstIndex(of: UInt8(ascii: "?")) ?? rest.endIndex
        let path = try Self.decoded(rest[..<query].dropFirst())
        parameters = try Self.parameters(rest[query...].dropFirst())
        if let text = parameters["host"] { names = Self.elements(text) }
        if let text = parameters["port"] { ports = Self.elements(text) }
        hosts = try Self.hosts(names, ports)
        database = parameters["dbname"] ?? (path.isEmpty ? nil : path)
    }

    // MARK: - Parts of the text

    private static func withoutScheme(_ text: String) throws(Fault) -> ArraySlice<UInt8> {
        for scheme in ["postgresql://", "postgres://"] where text.hasPrefix(scheme) {
            return Array(text.utf8).dropFirst(scheme.utf8.count)
        }
        throw .scheme
    }

    /// Takes what is before the first @, if that comes before the first slash.
    private static func takeUser(from rest: inout ArraySlice<UInt8>) throws(Fault) -> String? {
        guard let end = rest.firstIndex(where: { $0 == UInt8(ascii: "@") || $0 == UInt8(ascii: "/") }),
            rest[end] == UInt8(ascii: "@")
        else { return nil }
        let parts = rest[..<end].split(separator: UInt8(ascii: ":"), maxSplits: 1, omittingEmptySubsequences: false)
        guard parts.count == 1 || parts[1].isEmpty else { throw .password }
        rest = rest[(end + 1)...]
        return parts[0].isEmpty ? nil : try decoded(parts[0])
    }

    /// Takes the hosts with their ports, up to the slash or the question mark behind them.
    ///
    /// - Returns: As many ports as names; an empty one is the usual port. Both are empty if the text has neither.
    private static func takeHosts(
        from rest: inout ArraySlice<UInt8>
    ) throws(Fault) -> (names: [String], ports: [String]) {
        var (names, ports): ([String], [String]) = ([], [])
        while true {
            names.append(try decoded(takeName(from: &rest)))
            guard let next = rest.first, !endsHosts(next) else {
                ports.append("")
                break
            }
            guard next == UInt8(ascii: ":") || next == UInt8(ascii: ",") else { throw .bracket }
            var port: ArraySlice<UInt8> = []
            if next == UInt8(ascii: ":") {
                port = rest.dropFirst().prefix { !endsHosts($0) && $0 != UInt8(ascii: ",") }
                rest = rest[port.endIndex...]
            }
            ports.append(try decoded(port))
            guard rest.first == UInt8(ascii: ",") else { break }
            rest = rest.dropFirst()
        }
        let isEmpty = names.allSatisfy(\.isEmpty) && ports.allSatisfy(\.isEmpty)
        return isEmpty ? ([], []) : (names, ports)
    }

    private static func takeName(from rest: inout ArraySlice<UInt8>) throws(Fault) -> ArraySlice<UInt8> {
        guard rest.first == UInt8(ascii: "[") else {
            let name = rest.prefix { !endsHosts($0) && $0 != UInt8(ascii: ":") && $0 != UInt8(ascii: ",") }
            rest = rest[name.endIndex...]
            return name
        }
        guard let end = rest.firstIndex(of: UInt8(ascii: "]")), end > rest.startIndex + 1 else { throw .bracket }
        defer { rest = rest[(end + 1)...] }
        return rest[(rest.startIndex + 1)..<end]
    }

    private static func endsHosts(_ byte: UInt8) -> Bool { byte == UInt8(ascii: "/") || byte == UInt8(ascii: "?") }

    private static func parameters(_ query: ArraySlice<UInt8>) throws(Fault) -> [String: String] {
        var parameters: [String: String] = [:]
        for part in query.split(separator: UInt8(ascii: "&")) {
            let sides = part.split(separator: UInt8(ascii: "="), omittingEmptySubsequences: false)
            guard sides.count == 2 else { throw .parameter }
            let (name, value) = (try decoded(sides[0]), try decoded(sides[1]))
            if let fault = Fault(secretParameter: name) { throw fault }
            // As in the URLs of JDBC.
            if name == "ssl" && value == "true" {
                parameters["sslmode"] = "require"
            } else {
                parameters[name] = value
            }
        }
        return parameters
    }

    private static func hosts(_ names: [String], _ ports: [String]) throws(Fault) -> [Host] {
        let names = names.isEmpty && !ports.isEmpty ? [""] : names
        // A single port is that of all hosts.
        guard ports.count <= 1 || ports.count == names.count else { throw .port }
        var hosts: [Host] = []
        for (index, name) in names.enumerated() {
            let port = ports.isEmpty ? "" : ports[ports.count == 1 ? 0 : index]
            guard port.isEmpty || (1...65_535).contains(Quantities.number(port) ?? 0) else { throw .port }
            hosts.append(Host(name: name, port: Int(port)))
        }
        return hosts
    }

    /// The elements of a list as libpq separates them, without the blanks around them.
    static func elements(_ text: String) -> [String] {
        text.split(separator: ",", omittingEmptySubsequences: false).map(String.init)
    }

    /// Decodes the bytes that are written as % and two digits.
    private static func decoded(_ bytes: ArraySlice<UInt8>) throws(Fault) -> String {
        var decoded: [UInt8] = []
        var rest = bytes
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "%") else {
                decoded.append(byte)
                continue
            }
            let digits = rest.prefix(2).map { Character(Unicode.Scalar($0)).hexDigitValue }
            guard digits.count == 2, let high = digits[0], let low = digits[1], high + low > 0 else { throw .encoding }
            decoded.append(UInt8(high << 4 | low))
            rest = rest.dropFirst(2)
        }
        guard let text = String(validating: decoded, as: UTF8.self) else { throw .encoding }
        return text
    }
}
