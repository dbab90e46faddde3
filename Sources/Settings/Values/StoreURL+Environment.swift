internal import HTTP
package import TokenStore

/// What is known of a database by its URL together with the variables of libpq, which stand for parameters that the URL lacks
/// (postgresql.org/docs/current/libpq-envars.html).
///
/// What a connection service file adds is not known here.
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
