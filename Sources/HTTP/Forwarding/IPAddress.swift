internal import Glibc

/// An IPv4 or IPv6 address; an IPv4 address is the same as its form in IPv6 (`::ffff:192.0.2.1`, RFC 4291).
package struct IPAddress: Hashable, Sendable, CustomStringConvertible {
    /// The first eight bytes, as a number: of an IPv6 address usually the network (RFC 4291, section 2.5.4).
    package let high: UInt64
    /// The last eight bytes, as a number.
    package let low: UInt64

    private init(high: UInt64, low: UInt64) {
        self.high = high
        self.low = low
    }

    /// Reads an address as `inet_pton` does, without brackets, port or zone; nil if it is not an address.
    package init?(_ text: String) {
        // `inet_pton` takes a NUL for the end of the text, and would ignore what follows it.
        guard !text.utf8.contains(0) else { return nil }
        var four = in_addr()
        if unsafe inet_pton(AF_INET, text, &four) == 1 {
            self.init(high: 0, low: 0xffff_0000_0000 | UInt64(UInt32(bigEndian: four.s_addr)))
            return
        }
        var six = in6_addr()
        guard unsafe inet_pton(AF_INET6, text, &six) == 1 else { return nil }
        let halves = unsafe withUnsafeBytes(of: six) { bytes in
            unsafe (bytes.loadUnaligned(as: UInt64.self), bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
        }
        self.init(high: UInt64(bigEndian: halves.0), low: UInt64(bigEndian: halves.1))
    }

    /// Reads an element of X-Forwarded-For: `192.0.2.1`, `192.0.2.1:80`, `[2001:db8::1]`, `[2001:db8::1]:80` or `2001:db8::1`.
    package static func hop(_ text: String) -> IPAddress? {
        if text.hasPrefix("["), let close = text.firstIndex(of: "]") {
            return IPAddress(String(text[..<close].dropFirst()))
        }
        if let address = IPAddress(text) { return address }
        return text.lastIndex(of: ":").flatMap { IPAddress(String(text[..<$0])) }
    }

    /// Takes the 4 or 16 bytes of an address; nil for any other number of them.
    package init?(networkOrder bytes: ArraySlice<UInt8>) {
        let number = { (part: ArraySlice<UInt8>) in part.reduce(UInt64(0)) { $0 << 8 | UInt64($1) } }
        switch bytes.count {
        case 4: self.init(high: 0, low: 0xffff_0000_0000 | number(bytes))
        case 16: self.init(high: number(bytes.prefix(8)), low: number(bytes.suffix(8)))
        default: return nil
        }
    }

    /// The addresses that one client usually has: an IPv4 address is alone, of an IPv6 address the first 64 bits count.
    package var network: IPAddress { isIPv4 ? self : IPAddress(high: high, low: 0) }

    package var isIPv4: Bool { high == 0 && low >> 32 == 0xffff }

    /// 127.0.0.0/8 and `::1`.
    package var isLoopback: Bool { isIPv4 ? low >> 24 & 0xff == 127 : high == 0 && low == 1 }

    package var description: String {
        var text = [CChar](repeating: 0, count: Int(INET6_ADDRSTRLEN))
        if isIPv4 {
            var four = in_addr(s_addr: UInt32(truncatingIfNeeded: low).bigEndian)
            _ = unsafe inet_ntop(AF_INET, &four, &text, socklen_t(text.count))
        } else {
            var halves = (high.bigEndian, low.bigEndian)
            _ = unsafe inet_ntop(AF_INET6, &halves, &text, socklen_t(text.count))
        }
        return String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}

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
