import System
import Testing

@testable import HTTP

@Suite struct ProxyProtocolTests {
    private let signature: [UInt8] = [0x0d, 0x0a, 0x0d, 0x0a, 0, 0x0d, 0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a]

    private func block(_ command: UInt8, _ family: UInt8, _ rest: [UInt8], length: Int? = nil) -> [UInt8] {
        let length = length ?? rest.count
        return signature + [command, family, UInt8(length >> 8), UInt8(length & 0xff)] + rest
    }

    @Test func `a version 1 header has the client's address, or says that it is unknown`() {
        let four = "PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n"
        #expect(
            ProxyProtocol.read(Array((four + "GET /").utf8))
                == .header(length: four.utf8.count, client: IPAddress("192.0.2.1")))
        let six = "PROXY TCP6 2001:db8::1 ::1 1 2\r\n"
        #expect(
            ProxyProtocol.read(Array(six.utf8)) == .header(length: six.utf8.count, client: IPAddress("2001:db8::1")))
        for unknown in ["PROXY UNKNOWN\r\n", "PROXY UNKNOWN ffff::1 x y z\r\n"] {
            #expect(ProxyProtocol.read(Array(unknown.utf8)) == .header(length: unknown.utf8.count, client: nil))
        }
    }

    @Test func `a version 2 header has the client's address, or belongs to the proxy's own connection`() {
        let addresses: [UInt8] = [192, 0, 2, 1, 198, 51, 100, 1, 1, 2, 3, 4]
        let client = IPAddress("192.0.2.1")
        #expect(ProxyProtocol.read(block(0x21, 0x11, addresses)) == .header(length: 28, client: client))
        // Extensions follow the addresses.
        #expect(ProxyProtocol.read(block(0x21, 0x11, addresses + [4, 0, 1, 0])) == .header(length: 32, client: client))
        let six = [UInt8](repeating: 0, count: 15) + [1] + [UInt8](repeating: 0, count: 20)
        #expect(ProxyProtocol.read(block(0x21, 0x21, six)) == .header(length: 52, client: IPAddress("::1")))
        #expect(ProxyProtocol.read(block(0x20, 0x00, [])) == .header(length: 16, client: nil))
        #expect(ProxyProtocol.read(block(0x21, 0x31, [1, 2])) == .header(length: 18, client: nil))
    }

    @Test(
        arguments: [
            ([0x20, 0, 5, 1, 0, 0, 0, 0], true), ([0x20, 0, 5, 0, 0, 0, 0, 0], false),
            ([0x20, 0, 5, 7, 0, 0, 0, 1], true),
            // As hitch has it: ALPN and AUTHORITY first, and in its value VERSION (0x21).
            ([1, 0, 2, 104, 50, 2, 0, 1, 97, 0x20, 0, 12, 1, 0, 0, 0, 1, 0x21, 0, 4, 84, 76, 83, 49], true),
            // In the value of another extension, cut off, or empty.
            ([4, 0, 8, 0x20, 0, 5, 1, 0, 0, 0, 0], nil), ([4, 1, 0, 0x20, 0, 5, 1, 0, 0, 0, 0], nil),
            ([0x20, 0, 5], nil),
            ([0x20, 0, 0, 1, 0, 0], nil), ([], nil),
        ] as [([UInt8], Bool?)])
    func `a version 2 header says whether the client came over TLS`(extensions: [UInt8], isTLS: Bool?) {
        for (family, count) in [(0x00, 0), (0x11, 12), (0x21, 36)] as [(UInt8, Int)] {
            let bytes = block(0x21, family, [UInt8](repeating: 1, count: count) + extensions)
            guard case .header(bytes.count, let client, isTLS) = ProxyProtocol.read(bytes) else {
                Issue.record("\(ProxyProtocol.read(bytes))")
                continue
            }
            #expect((client == nil) == (count == 0))
        }
        // What the proxy asks for itself comes from no client.
        let ofSocket = block(0x21, 0x31, [UInt8](repeating: 0, count: 216) + extensions)
        #expect(ProxyProtocol.read(ofSocket) == .header(length: ofSocket.count, client: nil, isTLS: isTLS))
        let ofProxy = block(0x20, 0x00, extensions)
        #expect(ProxyProtocol.read(ofProxy) == .header(length: ofProxy.count, client: nil))
    }

    @Test(
        arguments: [
            "GET / HTTP/1.1\r\n", "PROXY TCP4 192.0.2.1\r\n", "PROXY TCP4 a b 1 2\r\n",
            "PROXY UDP4 1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1 2\n", "PROXY TCP4 1.2.3.4 1.2.3.4 1 70000\r\n",
            "PROXY  TCP4 1.2.3.4 1.2.3.4 1 2\r\n", "PROXY TCP4 1.2.3.4 1.2.3.4 +1 2\r\n",
            "PROXY TCP4 1.2.3.4\0 1.2.3.4 1 2\r\n", "PROXY TCP4 1.2.3.4 1.2.3.4\0x 1 2\r\n",
            // Addresses of another family than the header names.
            "PROXY TCP4 ::1 ::2 1 2\r\n", "PROXY TCP6 1.2.3.4 1.2.3.4 1 2\r\n", "PROXY TCP6 ::1 1.2.3.4 1 2\r\n",
            "PROXY UNKNOWN " + String(repeating: "x", count: 100),
        ]
    )
    func `what is no header is refused`(text: String) {
        #expect(ProxyProtocol.read(Array(text.utf8)) == .malformed)
    }

    @Test func `a binary header of another version, too long or too short is refused`() {
        #expect(ProxyProtocol.read(block(0x11, 0x11, Array(1...12))) == .malformed)
        #expect(ProxyProtocol.read(block(0x22, 0x11, Array(1...12))) == .malformed)
        #expect(ProxyProtocol.read(block(0x21, 0x11, Array(1...11))) == .malformed)
        #expect(ProxyProtocol.read(block(0x21, 0x21, Array(1...35))) == .malformed)
        #expect(ProxyProtocol.read(block(0x21, 0x11, [], length: 5_000)) == .malformed)
    }
}
