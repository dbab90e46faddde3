import System
import Testing

@testable import HTTP

@Suite struct IPAddressTests {
    @Test
    func `addresses are read and written in their usual form`() {
        for text in ["0.0.0.0", "192.0.2.1", "255.255.255.255", "::", "::1", "2001:db8::a:b", "fe80::1"] {
            #expect(IPAddress(text)?.description == text)
        }
        #expect(IPAddress("::ffff:192.0.2.1") == IPAddress("192.0.2.1"))
        for text in [
            "", "1.2.3", "1.2.3.4.5", "256.0.0.1", "::g", "[::1]", "1.2.3.4:5", "localhost", "1.2.3.4\0", "::1\0::2",
        ] {
            #expect(IPAddress(text) == nil, "\(text)")
        }
        #expect(IPAddress(networkOrder: [192, 0, 2, 1]) == IPAddress("192.0.2.1"))
        #expect(IPAddress(networkOrder: [1, 2]) == nil)
    }

    @Test(
        arguments: [
            ("10.0.0.0/8", "10.255.0.1", true), ("10.0.0.0/8", "11.0.0.0", false), ("10.0.0.7", "10.0.0.7", true),
            ("10.0.0.7", "10.0.0.6", false), ("0.0.0.0/0", "192.0.2.1", true), ("0.0.0.0/0", "::1", false),
            ("::/0", "192.0.2.1", true), ("fd00::/8", "fdff::1", true), ("fd00::/8", "fe00::1", false),
            ("2001:db8::/65", "2001:db8::7fff:0:0:1", true), ("2001:db8::/65", "2001:db8::8000:0:0:1", false),
            ("2001:db8::/64", "2001:db8::8000:0:0:1", true), ("::1", "::1", true), ("::1", "::2", false),
        ]
    )
    func `a block holds what agrees in its bits`(range: String, address: String, isInside: Bool) throws {
        let range = try #require(AddressRange(range))
        #expect(range.contains(try #require(IPAddress(address))) == isInside)
    }

    @Test(
        arguments: [
            "10.0.0.0/8", "10.0.0.7", "0.0.0.0/0", "::/0", "fd00::/8", "::1", "::ffff:0.0.0.0/90", "::ffff:10.1.2.3/0",
            "::ffff:10.0.0.0/95",
        ]
    )
    func `a block is written as it is read`(text: String) {
        #expect(AddressRange(text)?.description == text)
    }

    @Test
    func `a block of IPv4 addresses is written as one, however it was read`() {
        #expect(AddressRange("::ffff:0.0.0.0/96")?.description == "0.0.0.0/0")
        #expect(AddressRange("::ffff:10.0.0.0/104")?.description == "10.0.0.0/8")
        #expect(AddressRange("::ffff:10.0.0.1")?.description == "10.0.0.1")
    }

    @Test(
        arguments: ["10.0.0.0/33", "::/129", "10.0.0.0/-1", "10.0.0.0/", "/8", "a/8", "1.2.3.4/8/9", "10.0.0.0/+8"])
    func `what is no block is refused`(text: String) {
        #expect(AddressRange(text) == nil)
    }
}
