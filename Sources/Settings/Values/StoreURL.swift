internal import HTTP
package import TokenStore

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

/// What is known of a database by its URL together with the variables of libpq, which stand for parameters that the URL lacks
/// (postgresql.org/docs/current/libpq-envars.html).
///
/// The settings of a connection service file are not known here.
extension StoreURL {
    /// The machines that may have the database; empty for libpq's own choice, which is this machine.
    package func hosts(_ environment: [String: String]) -> [Host] {
        guard hosts.allSatisfy(\.name.isEmpty) else { return hosts }
        return Self.elements(environment["PGHOST"] ?? "").map { Host(name: $0, port: hosts.first?.port) }
    }

    /// The durability of `store.durability: auto`: several hosts are there so that one may be lost.
    package func durability(_ environment: [String: String]) -> StoreDurability {
        let addresses = Self.elements(value("hostaddr", "PGHOSTADDR", environment) ?? "")
        return max(hosts(environment).count, addresses.count) > 1 ? .synchronous : .local
    }

    /// What is wrong with the encryption of connections to other machines; nil if it keeps out everybody who is in between.
    package func weakEncryption(_ environment: [String: String]) -> Weakness? {
        let remote = remoteHosts(environment)
        guard !remote.isEmpty, value("gssencmode", "PGGSSENCMODE", environment) != "require" else { return nil }
        let certificates = value("sslrootcert", "PGSSLROOTCERT", environment)
        let mode = value("sslmode", "PGSSLMODE", environment) ?? (certificates == "system" ? Self.safeMode : "prefer")
        return mode == Self.safeMode ? nil : Weakness(mode: mode, hosts: remote)
    }

    /// The mode of TLS in which a server proves that it is the one that was asked for.
    private static let safeMode = "verify-full"

    /// A mode of TLS that does not verify who the server is.
    package struct Weakness: Hashable, Sendable, CustomStringConvertible {
        let mode: String
        let hosts: [String]

        package var description: String {
            """
            connections to the database on \(hosts.joined(separator: ", ")) have sslmode \(mode): whoever is in between can read \
            and change what is stored
            """
        }

        package var advice: String {
            "add sslmode=verify-full and sslrootcert=FILE to store.url, the latter with the authority of the server's certificate"
        }
    }

    /// The names or addresses of hosts other than this machine.
    private func remoteHosts(_ environment: [String: String]) -> [String] {
        let names = hosts(environment).map(\.name)
        let addresses = Self.elements(value("hostaddr", "PGHOSTADDR", environment) ?? "")
        return (0..<max(names.count, addresses.count)).compactMap { index in
            let address = index < addresses.count && !addresses[index].isEmpty ? addresses[index] : nil
            let name = index < names.count ? names[index] : ""
            return Self.isLocal(address ?? name) ? nil : name.isEmpty ? address : name
        }
    }

    /// Whether a host is this machine, as far as its text tells: an empty one and the path of a socket are.
    private static func isLocal(_ host: String) -> Bool {
        host.isEmpty || host.hasPrefix("/") || host.hasPrefix("@") || host.lowercased() == "localhost"
            || IPAddress(host)?.isLoopback == true
    }

    private func value(_ parameter: String, _ variable: String, _ environment: [String: String]) -> String? {
        parameters[parameter] ?? environment[variable].flatMap { $0.isEmpty ? nil : $0 }
    }
}

extension StoreURL {
    /// Why a URL is refused; says what to do about it, and nothing of the text itself, which may contain a password.
    package enum Fault: Error, Hashable, CustomStringConvertible {
        case scheme
        /// A password between the user and the host, or the parameter `password`.
        case password
        /// Another parameter that is a secret.
        case secret(parameter: String)
        case blank
        case at
        case bracket
        case port
        case parameter
        case encoding

        /// Parameters that are secrets, with the case for each.
        init?(secretParameter name: String) {
            switch name {
            case "password": self = .password
            case "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key":
                self = .secret(parameter: name)
            default: return nil
            }
        }

        /// To be read after the name of the setting.
        package var description: String {
            switch self {
            case .scheme:
                """
                does not begin with postgresql:// or postgres://, as in \(StoreURL.example); what it is instead is not shown, \
                as it may contain a password
                """
            case .password:
                """
                has a password in it, which check-config, the status page and the process list would show; remove it from the \
                URL, and name a file with it there (passfile=PATH), or set PGPASSWORD or PGPASSFILE in the environment, or \
                give the service the systemd credential \(Settings.Store.passwordCredential)
                """
            case .secret(let parameter):
                """
                has the secret \(parameter) in it, which check-config, the status page and the process list would show; \
                remove it from the URL, and name a section of a connection service file with it there (service=NAME, and \
                PGSERVICEFILE in the environment)
                """
            case .blank: "has a blank or a control character in it; write %20 for a blank"
            case .at:
                """
                has an @ behind its hosts, or more than one; write %40 for an @, and %2F for a / in the name of the user, as \
                in \(StoreURL.example)
                """
            case .bracket:
                "has an IPv6 address that is not in brackets of its own, as in postgresql://[2001:db8::1]:5432/tokens"
            case .port: "has a port that is no number from 1 to 65535, or another number of ports than of hosts"
            case .parameter:
                "has something behind its ? that is not a name, one = and a value, as in ?sslmode=verify-full&user=a"
            case .encoding:
                "has a % that two hexadecimal digits do not follow, or bytes that are not UTF-8; write %25 for a %"
            }
        }
    }

    /// For messages.
    static let example = "postgresql://token_cache@db1,db2/tokens?sslmode=verify-full"
}
