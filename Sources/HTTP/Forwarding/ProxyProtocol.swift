package import System

/// The header by which a proxy in front of the connection tells who its client is: PROXY protocol versions 1 and 2
/// (haproxy.org/download/2.9/doc/proxy-protocol.txt).
package enum ProxyProtocol {
    package enum Reading: Equatable {
        case needsMore
        /// The header's length in bytes. The address is nil if the connection is the proxy's own or the proxy does not know it.
        ///
        /// `isTLS`: whether the client came over TLS, which the proxy has ended; nil if the header does not say.
        case header(length: Int, client: IPAddress?, isTLS: Bool? = nil)
        case malformed
    }

    /// Version 1 fits in this (section 2.1).
    private static let longestLine = 107
    /// Version 2 may carry extensions; no proxy sends nearly as much as this.
    private static let longestBlock = 4096
    /// No header is longer than this.
    package static let longest = 16 + longestBlock
    private static let lineStart = Array("PROXY ".utf8)
    private static let blockStart: [UInt8] = [0x0d, 0x0a, 0x0d, 0x0a, 0x00, 0x0d, 0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a]

    /// Reads a header at the beginning of a connection's bytes.
    package static func read(_ bytes: [UInt8]) -> Reading {
        if starts(bytes, like: blockStart) { return readBlock(bytes) }
        if starts(bytes, like: lineStart) { return readLine(bytes) }
        return .malformed
    }

    /// Whether the bytes begin with `start`, as far as they go.
    private static func starts(_ bytes: [UInt8], like start: [UInt8]) -> Bool {
        bytes.prefix(start.count).elementsEqual(start.prefix(bytes.count))
    }

    /// `PROXY TCP4 192.0.2.1 198.51.100.1 56324 443` or `PROXY UNKNOWN` with anything behind it.
    private static func readLine(_ bytes: [UInt8]) -> Reading {
        guard let lineFeed = bytes.prefix(longestLine).firstIndex(of: UInt8(ascii: "\n")) else {
            return bytes.count < longestLine ? .needsMore : .malformed
        }
        guard bytes[lineFeed - 1] == UInt8(ascii: "\r") else { return .malformed }
        let line = String(decoding: bytes[..<(lineFeed - 1)], as: UTF8.self)
        let words = line.split(separator: " ", omittingEmptySubsequences: false)
        if words.count >= 2 && words[1] == "UNKNOWN" { return .header(length: lineFeed + 1, client: nil) }
        guard words.count == 6, words[1] == "TCP4" || words[1] == "TCP6",
            words[2...3].allSatisfy({ $0.contains(":") == (words[1] == "TCP6") }),
            let client = IPAddress(String(words[2])), IPAddress(String(words[3])) != nil,
            words[4...5].allSatisfy(isPort)
        else { return .malformed }
        return .header(length: lineFeed + 1, client: client)
    }

    /// Whether a word is a port in digits alone; Swift's conversion would accept a plus sign too.
    private static func isPort(_ word: Substring) -> Bool {
        UInt16(word) != nil && word.utf8.allSatisfy(ByteClass.isDigit)
    }

    /// Twelve bytes of signature, version and command, family, the length of the rest, then source and destination.
    private static func readBlock(_ bytes: [UInt8]) -> Reading {
        guard bytes.count >= 16 else { return .needsMore }
        let (version, command) = (bytes[12] >> 4, bytes[12] & 0x0f)
        let length = Int(bytes[14]) << 8 | Int(bytes[15])
        guard version == 2, command <= 1, length <= longestBlock else { return .malformed }
        guard bytes.count >= 16 + length else { return .needsMore }
        let end = 16 + length
        // LOCAL: the proxy's own health check.
        if command == 0 { return .header(length: end, client: nil) }
        switch bytes[13] >> 4 {
        case 0: return .header(length: end, client: nil, isTLS: isTLS(bytes[16..<end]))
        case 1:
            guard length >= 12 else { return .malformed }
            let client = IPAddress(networkOrder: bytes[16..<20])
            return .header(length: end, client: client, isTLS: isTLS(bytes[28..<end]))
        case 2:
            guard length >= 36 else { return .malformed }
            let client = IPAddress(networkOrder: bytes[16..<32])
            return .header(length: end, client: client, isTLS: isTLS(bytes[52..<end]))
        // Two paths of Unix sockets come first.
        case 3 where length >= 216: return .header(length: end, client: nil, isTLS: isTLS(bytes[232..<end]))
        default: return .header(length: end, client: nil)
        }
    }

    /// Whether extensions say that the client came over TLS (section 2.2.6); nil if none of them is about that.
    ///
    /// Each is a type, two bytes of length, and a value. That of PP2_TYPE_SSL begins with bits, of which PP2_CLIENT_SSL is the
    /// first.
    private static func isTLS(_ extensions: ArraySlice<UInt8>) -> Bool? {
        var rest = extensions
        while rest.count > 3 {
            let start = rest.startIndex
            let length = Int(rest[start + 1]) << 8 + Int(rest[start + 2])
            guard 3 + length <= rest.count else { return nil }
            if rest[start] == 0x20 && length > 0 { return rest[start + 3] & 1 == 1 }
            rest = rest.dropFirst(3 + length)
        }
        return nil
    }
}
