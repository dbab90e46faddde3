/// What a client's connection begins with where the listener requires a PROXY header.
struct ProxyHeader {
    let bytes: [UInt8]
    /// Whether the server must refuse the connection because of these bytes.
    let isMalformed: Bool

    private static let signature: [UInt8] = [0x0d, 0x0a, 0x0d, 0x0a, 0x00, 0x0d, 0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a]

    /// - Parameter mayBeMalformed: Whether the proxy may send something else.
    init(_ random: Randomness, mayBeMalformed: Bool) {
        isMalformed = mayBeMalformed && random.happens(oneIn: 6)
        if isMalformed {
            bytes = random.among([
                // The request itself follows.
                [], Array("PROXY TCP4 a b 1 2\r\n".utf8), Array("PROXY TCP4 127.0.0.1 127.0.0.1 1 2\n".utf8),
                Array("PROXY UNKNOWN ".utf8) + [UInt8](repeating: UInt8(ascii: "x"), count: 200),
                Self.block(version: 1, command: 1, family: 0x11, [UInt8](repeating: 0, count: 12)),
                Self.block(version: 2, command: 1, family: 0x11, [127, 0, 0, 1]),
            ])
            return
        }
        let extensions = [UInt8](repeating: 0xee, count: random.among([0, 0, 3, 700, 4_000]))
        bytes = random.among([
            Array("PROXY TCP4 127.0.0.1 192.0.2.1 56324 443\r\n".utf8),
            Array("PROXY TCP6 ::1 2001:db8::1 1 65535\r\n".utf8), Array("PROXY UNKNOWN\r\n".utf8),
            Self.block(version: 2, command: 0, family: 0, []),
            Self.block(version: 2, command: 1, family: 0x11, [127, 0, 0, 1, 192, 0, 2, 1, 0, 1, 1, 187] + extensions),
        ])
    }

    private static func block(version: UInt8, command: UInt8, family: UInt8, _ rest: [UInt8]) -> [UInt8] {
        signature + [version << 4 | command, family, UInt8(rest.count >> 8), UInt8(rest.count & 0xff)] + rest
    }
}
