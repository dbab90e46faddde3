import HTTP
import System

extension FuzzTarget {
    /// What proxies tell: the PROXY protocol, addresses and ranges of them.
    static let proxies = FuzzTarget(
        "proxies",
        words: [
            "PROXY ", "PROXY TCP4 ", "PROXY TCP6 ", "PROXY UNKNOWN", "192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1",
            " 80 443",
            "\r\n", "\r", "\0", "\r\n\r\n\0\r\nQUIT\n", "\u{21}\u{11}\0\u{c}", "\u{20}\0\0\0",
            "[2001:db8::1]:80", "/8", "/128", "+1", "256", "01", "unknown", "%eth0",
        ]
    ) { input in
        try readProxyHeader(input)
        try readAddress(input)
    }

    // MARK: - PROXY protocol

    private static func readProxyHeader(_ input: [UInt8]) throws {
        let whole = ProxyProtocol.read(input)
        guard case .header(let length, _, _) = whole else { return }
        try require(length <= min(input.count, ProxyProtocol.longest), "the header is longer than it can be")
        // What follows it changes nothing, and without its last byte it is not whole.
        try compare(ProxyProtocol.read(Array(input[..<length])), whole, "the header without what follows it")
        for end in 1..<length {
            try compare(ProxyProtocol.read(Array(input[..<end])), .needsMore, "the first \(end) bytes of a header")
        }
    }

    // MARK: - Addresses

    private static func readAddress(_ input: [UInt8]) throws {
        let text = String(decoding: input, as: UTF8.self)
        if let address = IPAddress.hop(text) {
            try compare(IPAddress.hop("[\(address)]:80"), address, "the address \(address) with a port")
        }
        if let address = IPAddress(text) {
            try compare(IPAddress("\(address)"), address, "the address that \(address) is written as")
            try require(input.text.allSatisfy { $0.isHexadecimal || $0 == "." || $0 == ":" }, "an address has \(input)")
            if !text.contains(":") {
                let parts = text.split(separator: ".", omittingEmptySubsequences: false).map { Int($0) ?? -1 }
                try require(parts.count == 4 && parts.allSatisfy { (0...255).contains($0) }, "an address is \(parts)")
            }
        }
        guard let range = AddressRange(text) else { return }
        try compare(AddressRange("\(range)"), range, "the range that \(range) is written as")
        let parts = input.text.split(separator: "/", omittingEmptySubsequences: false)
        try require(parts.count < 3 && parts.dropFirst().allSatisfy { $0.isDigits }, "a range has a length \(parts)")
        guard let first = IPAddress(parts[0].string) else { throw Mismatch("a range begins with no address") }
        try require(range.contains(first), "a range has not its first address")
    }
}
