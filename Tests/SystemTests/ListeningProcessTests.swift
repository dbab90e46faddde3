import Glibc
import Testing

@testable import System

@Suite struct ListeningProcessTests {
    private func socket(_ address: String, state: String = "0A") -> ListeningSocket? {
        ListeningSocket(
            listed:
                "   0: \(address) 00000000:0000 \(state) 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0"
        )
    }

    private func excludes(_ listed: String, _ host: String, _ port: UInt16) throws -> Bool {
        let address = try #require(try SocketAddress.resolve(host: host, port: port).first)
        let found = try #require(socket(listed))
        return found.port == port && found.excludes(address)
    }

    @Test func `a listening socket is read from the kernel's list`() {
        #expect(socket("0100007F:1F90")?.address == [127, 0, 0, 1])
        #expect(socket("0100007F:1F90")?.port == 8080 && socket("0100007F:1F90")?.inode == "4711")
        #expect(socket("00000000000000000000000001000000:0050")?.address == [UInt8](repeating: 0, count: 15) + [1])
        // A connection, the heading, and nonsense.
        #expect(socket("0100007F:1F90", state: "01") == nil)
        #expect(
            ListeningSocket(listed: "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt")
                == nil)
        #expect(socket("0100007F") == nil && socket("xx00007F:1F90") == nil && socket("01000:1F90") == nil)
    }

    @Test(arguments: [
        ("0100007F:1F90", "127.0.0.1", true), ("0200007F:1F90", "127.0.0.1", false),
        ("00000000:1F90", "127.0.0.1", true),
        ("0100007F:1F90", "0.0.0.0", true), ("0100007F:1F91", "127.0.0.1", false), ("0100007F:1F90", "::1", false),
        ("00000000000000000000000001000000:1F90", "::1", true),
        ("00000000000000000000000000000000:1F90", "127.0.0.1", true),
        ("00000000000000000000000001000000:1F90", "127.0.0.1", false),
    ])
    func `a socket excludes its own address and, for all addresses, every one with its port`(
        listed: String, host: String, expected: Bool
    ) throws {
        #expect(try excludes(listed, host, 8080) == expected)
    }
}
