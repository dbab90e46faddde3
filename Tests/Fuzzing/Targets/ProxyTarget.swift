import HTTP

extension FuzzTarget {
    /// What proxies tell: the PROXY protocol, Forwarded, addresses and ranges of them.
    static let proxies = FuzzTarget(
        "proxies",
        words: [
            "PROXY ", "PROXY TCP4 ", "PROXY TCP6 ", "PROXY UNKNOWN", "192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1",
            " 80 443",
            "\r\n", "\r", "\0", "\r\n\r\n\0\r\nQUIT\n", "\u{21}\u{11}\0\u{c}", "\u{20}\0\0\0", "for=", "proto=https",
            "by=_a",
            "[2001:db8::1]:80", "\"", "\\\"", ";", ",", "=", "/8", "/128", "+1", "256", "01", "unknown", "%eth0",
        ]
    ) { input in
        try readProxyHeader(input)
        try readForwarded(input)
        try readAddress(input)
    }

    // MARK: - PROXY protocol

    private static func readProxyHeader(_ input: [UInt8]) throws {
        let whole = ProxyProtocol.read(input)
        guard case .header(let length, _) = whole else { return }
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

    // MARK: - Forwarded

    /// RFC 7239, section 4: what the last element says is found behind whatever a client has sent before it.
    private static func readForwarded(_ input: [UInt8]) throws {
        // Only such a value comes out of a head.
        guard input.text.allSatisfy(\.isInFieldValue) else { return }
        let value = ForwardedElements(ByteRange(0, input.count), in: input.span)
        let appended = input + Array(", for=\"[2001:db8::1]:80\";proto=https".utf8)
        let longer = ForwardedElements(ByteRange(0, appended.count), in: appended.span)
        try compare(longer.isWellFormed, value.isWellFormed, "whether the value is well-formed")
        guard value.isWellFormed else {
            try require(value.elements.isEmpty && longer.elements.isEmpty, "elements of a malformed value")
            return
        }
        try compare(longer.elements.count, min(value.elements.count + 1, ForwardedElements.limit), "the elements")
        try compare(longer.elements.last?.proto, Array("https".utf8), "the last element's proto")
        try compare(longer.elements.last?.address, IPAddress("2001:db8::1"), "the last element's address")
        for (element, again) in zip(value.elements.reversed(), longer.elements.dropLast().reversed()) {
            try require(element.address == again.address && element.proto == again.proto, "an element has changed")
        }
    }
}
