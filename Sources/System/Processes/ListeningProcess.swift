internal import Glibc

/// The process that keeps another one from listening on a TCP address, as far as this process may see.
package struct ListeningProcess: Codable, Hashable, Sendable {
    package let number: Int
    /// As ps(1) shows it; empty if it cannot be told.
    package let name: String

    /// Finds the process that listens on an address, or on all addresses with the same port.
    ///
    /// - Returns: Nil if there is none, or if it is another user's: only root may see which sockets a process has open.
    package static func find(_ address: SocketAddress) -> ListeningProcess? {
        let sockets = ListeningSocket.all.filter { $0.port == address.port }
        let inodes = sockets.filter { $0.excludes(address) }.map(\.inode)
        guard !inodes.isEmpty else { return nil }
        let links = Set(inodes.map { "socket:[\($0)]" })
        for process in (Folder.names(in: "/proc") ?? []).compactMap(Int.init) where process != getpid() {
            let descriptors = Folder.names(in: "/proc/\(process)/fd") ?? []
            let isListener = descriptors.contains { number in
                FollowedPath.target(of: "/proc/\(process)/fd/\(number)").map(links.contains) ?? false
            }
            guard isListener else { continue }
            let name = (TextFile.contents(of: "/proc/\(process)/comm") ?? "").prefix { $0 != "\n" }
            return ListeningProcess(number: process, name: String(name))
        }
        return nil
    }

    /// `another token-cache, process 4711`, or `another program, process 4711 (nginx)`.
    package var text: String {
        if name == "token-cache" { return "another token-cache, process \(number)" }
        return "another program, process \(number)\(name.isEmpty ? "" : " (\(name))")"
    }
}

/// A TCP socket that listens, as the kernel lists it (proc(5), `/proc/net/tcp`).
struct ListeningSocket: Equatable {
    /// The 4 or 16 bytes of the address, in network order.
    let address: [UInt8]
    let port: UInt16
    /// By which the descriptors of processes lead to the socket.
    let inode: String

    static var all: [ListeningSocket] {
        ["/proc/net/tcp", "/proc/net/tcp6"].flatMap { file in
            (TextFile.contents(of: file) ?? "").split(separator: "\n").compactMap { ListeningSocket(listed: $0) }
        }
    }

    /// Reads a line such as `0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 12345 1 ...`; nil if
    /// that is no socket that listens.
    init?(listed line: Substring) {
        let words = line.split(separator: " ")
        guard words.count > 9, words[3] == "0A" else { return nil }
        let parts = words[1].split(separator: ":")
        guard parts.count == 2, let port = UInt16(parts[1], radix: 16), parts[0].utf8.count % 8 == 0 else { return nil }
        var address: [UInt8] = []
        var digits = parts[0]
        while !digits.isEmpty {
            // Each word of four bytes as a number of this machine.
            guard let word = UInt32(digits.prefix(8), radix: 16)?.littleEndian else { return nil }
            for shift in stride(from: 0, to: 32, by: 8) { address.append(UInt8(truncatingIfNeeded: word >> shift)) }
            digits = digits.dropFirst(8)
        }
        (self.address, self.port, inode) = (address, port, String(words[9]))
    }

    /// Whether nobody else can listen on an address with this port.
    func excludes(_ other: SocketAddress) -> Bool {
        let own = other.addressBytes
        let isWildcard = address.allSatisfy { $0 == 0 }
        guard address.count == own.count else {
            // A socket of IPv6 for all addresses takes connections of IPv4 too, unless it was told not to (ipv6(7), IPV6_V6ONLY).
            return isWildcard && address.count > own.count
        }
        return isWildcard || other.isWildcard || address == own
    }
}
