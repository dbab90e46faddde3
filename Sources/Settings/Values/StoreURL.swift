import System
package import TokenStore

#if PostgreSQL
import CPostgres
#endif

/// The URL of a PostgreSQL database, as its client library libpq reads it
/// (postgresql.org/docs/current/libpq-connect.html, section 34.1.1.2).
///
/// Unlike libpq, it refuses secrets, because settings are shown; and every @ that may be a part of a password, of which libpq would
/// take the rest for a host, a port or a database. Without the trait PostgreSQL, every URL is refused.
package struct StoreURL: Sendable {
    /// The values of libpq's parameters, by name: from the URL, or else from libpq's variables (`PGHOST`), its service file and its
    /// defaults.
    private let effective: [String: String]
    /// At least one.
    package let hosts: [DatabaseHost]

    package init(_ text: String) throws(Fault) {
        guard let scheme = ["postgresql://", "postgres://"].first(where: text.hasPrefix) else { throw .scheme }
        guard text.utf8.allSatisfy({ $0 > 0x20 && $0 != 0x7f }) else { throw .blank }
        let rest = text.dropFirst(scheme.count)
        if let at = rest.lastIndex(of: "@"), rest[..<at].contains(where: { "@/?".contains($0) }) { throw .at }
        let given = try Self.parsed(text)
        for name in Self.secrets where given[name] != nil { throw .secret(parameter: name) }
        // libpq checks a port only when it connects, and then quotes it in its error.
        for port in Self.elements(given["port"]) where !port.isEmpty {
            guard (1...65_535).contains(Quantities.number(port) ?? 0) else { throw .port }
        }
        effective = Self.defaults.merging(given) { $1 }
        let (names, addresses) = (Self.elements(effective["host"]), Self.elements(effective["hostaddr"]))
        // libpq's default in place of an empty port, as in the list of db1,db2: an empty one could not replace the URL's list when
        // one of the hosts is connected to.
        let ports = Self.elements(effective["port"]).map { $0.isEmpty ? "5432" : $0 }
        let count = max(1, names.count, addresses.count)
        guard ports.count <= 1 || ports.count == count else { throw .port }
        hosts = (0..<count).map { index in
            DatabaseHost(
                name: index < names.count ? names[index] : "", address: index < addresses.count ? addresses[index] : "",
                port: ports.count > 1 ? ports[index] : ports.first ?? "")
        }
    }

    /// The parameters that are secrets.
    private static let secrets = [
        "password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key",
    ]

    /// What `store.durability: auto` means: with several hosts, one may be lost.
    package var durability: StoreDurability { hosts.count > 1 ? .synchronous : .local }

    /// What is wrong with the encryption of connections to other machines, and what to do about it; nil if it keeps out everyone in
    /// between.
    package var weakEncryption: (fault: String, advice: String)? {
        let mode = effective["sslmode"] ?? "prefer"
        let remote = remoteHosts
        // With sslrootcert=system, libpq always verifies names.
        guard !remote.isEmpty, mode != "verify-full", effective["sslrootcert"] != "system",
            effective["gssencmode"] != "require"
        else { return nil }
        return (
            """
            connections to the database on \(remote.joined(separator: ", ")) have sslmode \(mode): anyone in between can read and \
            change what is stored
            """,
            "add sslmode=verify-full and sslrootcert=FILE to store.url, the latter with the authority of the server's certificate"
        )
    }

    /// The names or addresses of hosts other than this machine.
    private var remoteHosts: [String] {
        hosts.filter { !Self.isLocal($0.address.isEmpty ? $0.name : $0.address) }
            .map { $0.name.isEmpty ? $0.address : $0.name }
    }

    /// Whether a host is this machine, as far as its text tells; an empty one and the path of a socket are.
    private static func isLocal(_ host: String) -> Bool {
        host.isEmpty || host.hasPrefix("/") || host.hasPrefix("@") || host.lowercased() == "localhost"
            || IPAddress(host)?.isLoopback == true
    }

    private static func elements(_ list: String?) -> [String] {
        list.map { $0.split(separator: ",", omittingEmptySubsequences: false).map(String.init) } ?? []
    }

    /// For messages.
    package static let example = "postgresql://token_cache@db1,db2/tokens?sslmode=verify-full"
}

// MARK: - libpq

extension StoreURL {
    #if PostgreSQL
    private static func parsed(_ text: String) throws(Fault) -> [String: String] {
        // The error message is not asked for, as it would quote parts of the text.
        guard let options = unsafe PQconninfoParse(text, nil) else { throw .unreadable }
        defer { unsafe PQconninfoFree(options) }
        return unsafe values(of: options)
    }

    private static var defaults: [String: String] {
        guard let options = unsafe PQconndefaults() else { return [:] }
        defer { unsafe PQconninfoFree(options) }
        return unsafe values(of: options)
    }

    @unsafe private static func values(of options: UnsafeMutablePointer<PQconninfoOption>) -> [String: String] {
        var (values, option) = unsafe ([String: String](), options)
        while let keyword = unsafe option.pointee.keyword {
            if let value = unsafe option.pointee.val {
                values[unsafe String(cString: keyword)] = unsafe String(cString: value)
            }
            unsafe option += 1
        }
        return values
    }
    #else
    private static func parsed(_ text: String) throws(Fault) -> [String: String] { throw .unsupported }

    private static var defaults: [String: String] { [:] }
    #endif
}

extension StoreURL {
    /// Why a URL is refused, and what to do about it.
    ///
    /// Its texts do not show the URL, which may contain a password.
    package enum Fault: Error, Hashable, CustomStringConvertible {
        case scheme, blank, at, port, unreadable, unsupported
        case secret(parameter: String)

        /// To be read after the name of the setting.
        package var description: String {
            switch self {
            case .scheme:
                """
                does not begin with postgresql:// or postgres://, as in \(StoreURL.example); its value is not shown, as it may \
                contain a password
                """
            case .secret("password"):
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
                has an @ after its hosts, or more than one; write %40 for an @, and %2F for a / in the name of the user, as \
                in \(StoreURL.example); a password does not belong in it
                """
            case .port:
                """
                has a port that is no number from 1 to 65535, or neither one port for all hosts nor one for each (PGPORT counts \
                if the URL names none)
                """
            case .unreadable:
                """
                cannot be read by libpq: it has a parameter that this version does not know, an IPv6 address without brackets, a % \
                without two hexadecimal digits after it, or is not like \(StoreURL.example)
                """
            case .unsupported:
                """
                names a PostgreSQL database, and this token-cache was built without PostgreSQL; build it with \
                deploy/build --traits PostgreSQL, or install a package or a container image that was built so
                """
            }
        }
    }
}
