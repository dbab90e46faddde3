#if PostgreSQL
import Synchronization
import TokenStore

/// What operators are shown of the hosts of the database.
///
/// Any thread.
final class KnownHosts: Sendable {
    private struct Host {
        /// The host's name in the settings.
        var name: String
        var role = RemoteStoreMetrics.Host.Role.unknown
        var facts: HostFacts?
    }

    private let hosts: Mutex<[Host]>

    /// - Parameter names: Of the hosts, in the order of the settings.
    init(_ names: [String]) {
        hosts = Mutex(names.map { Host(name: $0) })
    }

    /// All names, for example `db1:5432, db2:5432`.
    var names: String { hosts.withLock { $0.map(\.name).joined(separator: ", ") } }

    /// A host has said what it is.
    ///
    /// - Parameter index: Its place in the settings; nil if it has said so before, and so is known by its address.
    func note(_ facts: HostFacts, of index: Int?) {
        hosts.withLock { hosts in
            guard let index = index ?? hosts.firstIndex(where: { $0.name == facts.address }) else { return }
            (hosts[index].name, hosts[index].facts) = (facts.address, facts)
        }
    }

    /// A host has turned out to be the primary.
    func notePrimary(_ index: Int) {
        hosts.withLock { hosts in
            for other in hosts.indices where hosts[other].role == .primary { hosts[other].role = .former }
            hosts[index].role = .primary
        }
    }

    /// A host could not be used.
    func note(_ index: Int, _ error: PostgresError) {
        hosts.withLock { hosts in
            if error == .isStandby {
                hosts[index].role = .standby
            } else if !error.isFromServer {
                hosts[index].role = .unreachable
            } else if hosts[index].role != .primary || error.state == .readOnly {
                // Otherwise a primary stays one, as other connections to it may still be in use.
                hosts[index].role = .refused
            }
        }
    }

    /// What the present primary has reported about itself; nil until one was found.
    var primary: HostFacts? { hosts.withLock { hosts in hosts.first { $0.role == .primary }?.facts } }

    /// - Parameter connections: How many are open, by the names of their hosts.
    func list(_ connections: [String: Int]) -> [RemoteStoreMetrics.Host] {
        hosts.withLock { hosts in
            hosts.map { host in
                var listed = RemoteStoreMetrics.Host(name: host.name)
                listed.role = host.role
                listed.version = host.facts?.version ?? ""
                listed.connections = connections[host.name] ?? 0
                return listed
            }
        }
    }
}
#endif
