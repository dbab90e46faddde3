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
        try compare(whole, proxyHeader(input.text), "the PROXY header")
        guard case .header(let length, _) = whole else { return }
        try require(length <= min(input.count, ProxyProtocol.longest), "the header is longer than it can be")
        // What follows it changes nothing, and without its last byte it is not whole.
        try compare(ProxyProtocol.read(Array(input[..<length])), whole, "the header without what follows it")
        for end in 1..<length {
            try compare(ProxyProtocol.read(Array(input[..<end])), .needsMore, "the first \(end) bytes of a header")
        }
    }

    /// Sections 2.1 and 2.2 of the protocol.
    private static func proxyHeader(_ text: Text) -> ProxyProtocol.Reading {
        let signature = "\r\n\r\n\0\r\nQUIT\n".text
        if text.count < 12, signature.starts(with: text) || "PROXY ".text.starts(with: text) { return .needsMore }
        if text.starts(with: signature) { return proxyBlock(text.map { Int($0.value) }) }
        guard text.hasPrefix("PROXY ") else {
            return .malformed
        }
        let line = text.prefix(107).prefix { $0 != "\n" }
        if line.count == text.count, line.count < 107 { return .needsMore }
        guard line.count < min(text.count, 107), line.last == "\r" else { return .malformed }
        let words = line.dropLast().split(separator: " ", omittingEmptySubsequences: false)
        if words[1].string == "UNKNOWN" { return .header(length: line.count + 1, client: nil) }
        guard words.count == 6, let source = address(words[2]), let destination = address(words[3]),
            words[4...].allSatisfy({ $0.isDigits && $0.count <= 5 && Int($0.string) ?? .max <= 65_535 })
        else { return .malformed }
        let family = words[1].string
        let isFour = !words[2].contains(":") && !words[3].contains(":")
        let isSix = words[2].contains(":") && words[3].contains(":")
        guard family == "TCP4" && isFour || family == "TCP6" && isSix else { return .malformed }
        _ = destination
        return .header(length: line.count + 1, client: source)
    }

    private static func proxyBlock(_ bytes: [Int]) -> ProxyProtocol.Reading {
        guard bytes.count >= 16 else { return .needsMore }
        let length = bytes[14] * 256 + bytes[15]
        guard bytes[12] == 0x20 || bytes[12] == 0x21, length <= 4096 else { return .malformed }
        guard bytes.count >= 16 + length else { return .needsMore }
        let (isProxied, family) = (bytes[12] == 0x21, bytes[13] / 16)
        let size = isProxied ? [1: 4, 2: 16][family] : nil
        guard let size else { return .header(length: 16 + length, client: nil) }
        guard length >= 2 * size + 4 else { return .malformed }
        let client = IPAddress(networkOrder: bytes[16..<16 + size].map { UInt8($0) }[...])
        return .header(length: 16 + length, client: client)
    }

    /// An address in the notation of RFC 4291 or RFC 1123, by the description that it has.
    private static func address(_ text: Text) -> IPAddress? {
        guard text.allSatisfy({ $0.isHexadecimal || $0 == "." || $0 == ":" }) else { return nil }
        return IPAddress(text.string)
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
