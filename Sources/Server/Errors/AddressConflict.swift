internal import EventLoop
package import Settings
internal import System

/// Two addresses in the settings that cannot both be bound, such as one address written twice, or a wildcard and one of
/// its addresses.
package struct AddressConflict: Error, Hashable, CustomStringConvertible {
    private let first: Entry
    private let second: Entry

    /// An address, and the setting that names it.
    private struct Entry: Hashable {
        let key: String
        let name: String
        /// Whether it stands for all addresses of its family.
        let isWildcard: Bool
    }

    /// Finds the first such pair after resolving host names; nil when there is none.
    ///
    /// Skips names that cannot be resolved: `StartError.resolution` reports these.
    package static func find(listen: [ListenAddress], administration: [ListenAddress]) -> AddressConflict? {
        var seen: [(entry: Entry, address: SocketAddress?)] = []
        for (key, address) in listen.map({ ("listen", $0) }) + administration.map({ ("admin.listen", $0) }) {
            for (name, resolved) in places(of: address) {
                let entry = Entry(key: key, name: name, isWildcard: resolved?.isWildcard ?? false)
                let taken = seen.first { other in
                    if let resolved, let address = other.address { return resolved.conflicts(with: address) }
                    return other.entry.name == name
                }
                if let taken { return AddressConflict(first: taken.entry, second: entry) }
                seen.append((entry, resolved))
            }
        }
        return nil
    }

    private static func places(of address: ListenAddress) -> [(name: String, resolved: SocketAddress?)] {
        switch address.place {
        case .unix(let path): [("unix:\(path)", nil)]
        case .tcp(let host, let port):
            ((try? SocketAddress.resolve(host: host, port: port)) ?? []).map { ("\($0)", $0) }
        case .systemd: []
        }
    }

    package var description: String {
        let once = "each address can be listened on once"
        if first.name == second.name {
            return first.key == second.key
                ? "\(first.key) has \(first.name) twice, perhaps once by name; \(once)"
                : "\(first.key) and \(second.key) both have \(first.name); \(once)"
        }
        let (all, one) = first.isWildcard ? (first, second) : (second, first)
        return "\(all.name) of \(all.key) stands for \(one.name) of \(one.key) as well; \(once)"
    }
}
