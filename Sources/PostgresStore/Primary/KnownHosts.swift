#if PostgreSQL
import Synchronization
import TokenStore

/// What operators are shown of the hosts of the database.
///
/// Any thread.
final class KnownHosts: Sendable {
    typealias Role = RemoteStoreMetrics.Host.Role

    private struct Host {
        /// The host's name in the settings.
        var name: String
        var role = Role.unknown
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
    /// - Parameter index: Its place in the settings.
    func note(_ index: Int, _ facts: HostFacts) {
        hosts.withLock { hosts in
            (hosts[index].name, hosts[index].facts) = (facts.address, facts)
            if !facts.isWritable { hosts[index].role = .standby }
        }
    }

    /// A known host has said again what it is.
    func note(_ facts: HostFacts) {
        hosts.withLock { hosts in
            for index in hosts.indices where hosts[index].name == facts.address { hosts[index].facts = facts }
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
    func note(_ index: Int, isReachable: Bool) {
        hosts.withLock { hosts in
            // Other connections to it may still be in use.
            guard hosts[index].role != .primary || !isReachable else { return }
            hosts[index].role = isReachable ? .refused : .unreachable
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

/// Servers that must no longer be used: their settings have changed, so what they acknowledge may be lost.
///
/// Any thread.
final class RefusedServers: Sendable {
    private struct Contents {
        var reasons: [ServerIdentity: String] = [:]
        var watchers: [@Sendable () -> Void] = []
    }

    private let contents = Mutex(Contents())

    /// Sets a function that is called, on any thread, whenever a server is found that must not be used.
    func watch(_ watcher: @escaping @Sendable () -> Void) {
        contents.withLock { $0.watchers.append(watcher) }
    }

    /// Why a server must not be used; nil if it may.
    func reason(_ server: ServerIdentity) -> String? {
        contents.withLock { $0.reasons[server] }
    }

    /// A server has said again what its settings are.
    ///
    /// - Parameter reason: Why it must not be used; nil if it may.
    func note(_ server: ServerIdentity, _ reason: String?) {
        let watchers = contents.withLock { contents in
            contents.reasons[server] = reason
            // Called each time, as a connection may have been made just before the settings changed.
            return reason == nil ? [] : contents.watchers
        }
        for watcher in watchers { watcher() }
    }
}
#endif
