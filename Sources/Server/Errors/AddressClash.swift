internal import EventLoop
package import Settings
internal import System

/// Two addresses of the settings of which only one can be listened on; says so.
package struct AddressClash: Error, Hashable, CustomStringConvertible {
    private let first: Entry
    private let second: Entry

    /// An address, and the setting that has it.
    private struct Entry: Hashable {
        let key: String
        let name: String
        /// It stands for all addresses of its family.
        let isWildcard: Bool
    }

    /// Looks for the first such pair, by the addresses that names stand for; nil when there is none.
    ///
    /// A name that is not known is passed over, for that is told of by itself.
    package static func find(listen: [ListenAddress], administration: [ListenAddress]) -> AddressClash? {
        var seen: [(entry: Entry, address: SocketAddress?)] = []
        for (key, address) in listen.map({ ("listen", $0) }) + administration.map({ ("admin.listen", $0) }) {
            for (name, resolved) in places(of: address) {
                let entry = Entry(key: key, name: name, isWildcard: resolved?.isWildcard ?? false)
                let taken = seen.first { other in
                    if let resolved, let address = other.address { return resolved.clashes(with: address) }
                    return other.entry.name == name
                }
                if let taken { return AddressClash(first: taken.entry, second: entry) }
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
