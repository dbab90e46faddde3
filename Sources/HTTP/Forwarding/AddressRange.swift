package import System

/// A block of addresses, such as `10.0.0.0/8`, `fd00::/8`, or one address.
package struct AddressRange: Hashable, Sendable, CustomStringConvertible {
    private let first: IPAddress
    /// How many leading bits of an address, in IPv6 form, must match.
    private let bits: Int

    /// Nil if the text is not such a block.
    package init?(_ text: String) {
        let parts = text.split(separator: "/", omittingEmptySubsequences: false)
        guard parts.count <= 2, let address = IPAddress(String(parts[0])) else { return nil }
        let width = address.isIPv4 && !parts[0].contains(":") ? 32 : 128
        var length = width
        if parts.count == 2 {
            guard parts[1].utf8.allSatisfy(ByteClass.isDigit), let number = Int(parts[1]), (0...width).contains(number)
            else { return nil }
            length = number
        }
        first = address
        bits = 128 - width + length
    }

    package func contains(_ address: IPAddress) -> Bool {
        let highMask = bits >= 64 ? .max : ~(UInt64.max >> UInt64(bits))
        let lowMask = bits <= 64 ? 0 : bits == 128 ? .max : ~(UInt64.max >> UInt64(bits - 64))
        return (first.high ^ address.high) & highMask == 0 && (first.low ^ address.low) & lowMask == 0
    }

    package var description: String {
        if bits == 128 { return "\(first)" }
        guard first.isIPv4 else { return "\(first)/\(bits)" }
        // A block that is larger than IPv4 has no IPv4 prefix length.
        return bits >= 96 ? "\(first)/\(bits - 96)" : "::ffff:\(first)/\(bits)"
    }
}

/// A peer, or a block of them, whose forwarded headers and PROXY headers are believed.
package enum TrustedProxy: Hashable, Sendable, CustomStringConvertible {
    case addresses(AddressRange)
    case unixSockets

    /// Reads an address, a block of addresses, or `unix` for the clients of Unix sockets; nil if the text is none of them.
    package init?(_ text: String) {
        if text == "unix" {
            self = .unixSockets
        } else if let range = AddressRange(text) {
            self = .addresses(range)
        } else {
            return nil
        }
    }

    /// - Parameter address: The peer's; nil for a Unix socket.
    package func contains(_ address: IPAddress?) -> Bool {
        switch self {
        case .addresses(let range): address.map(range.contains) ?? false
        case .unixSockets: address == nil
        }
    }

    package var description: String {
        switch self {
        case .addresses(let range): "\(range)"
        case .unixSockets: "unix"
        }
    }
}
