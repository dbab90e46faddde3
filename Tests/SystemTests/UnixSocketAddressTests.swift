import Glibc
import TestSupport
import Testing

@testable import System

@Suite struct UnixSocketAddressTests {
    @Test(
        arguments: [
            "/run/token-cache.sock", "@name", "/" + String(repeating: "p", count: 106),
            "@" + String(repeating: "n", count: 107),
        ]
    )
    func `a path and an abstract name are kept whole`(_ name: String) throws {
        #expect(try SocketAddress(name: name, call: "bind").description == "unix:\(name)")
    }

    @Test(arguments: ["/" + String(repeating: "p", count: 107), "@" + String(repeating: "n", count: 108)])
    func `a name that is too long is an error of the caller's call`(_ name: String) {
        #expect(throws: SystemError(call: "connect", code: ENAMETOOLONG)) {
            _ = try SocketAddress(name: name, call: "connect")
        }
    }

    @Test func `a bound socket knows its path, and another one connects to it`() throws {
        let folder = TemporaryDirectory()
        let address = try SocketAddress(name: folder.path + "/socket", call: "bind")
        let listener = try FileDescriptor(socket: AF_UNIX, SOCK_STREAM.rawValue)
        try address.bind(listener)
        #expect(try bound(listener.number) == "unix:\(folder.path)/socket")
        #expect(throws: SystemError(call: "connect", code: ECONNREFUSED)) {
            _ = try address.connect(timeoutInSeconds: 1)
        }
        #expect(listen(listener.number, 1) == 0)
        _ = try address.connect(timeoutInSeconds: nil)
    }

    @Test func `a path that fills all room is kept, although the kernel counts a byte more`() throws {
        let folder = TemporaryDirectory()
        let path = folder.path + "/" + String(repeating: "p", count: 107 - folder.path.utf8.count)
        let address = try SocketAddress("") { storage, _ in
            var full = sockaddr_un()
            full.sun_family = sa_family_t(AF_UNIX)
            withUnsafeMutableBytes(of: &full.sun_path) { $0.copyBytes(from: Array(path.utf8)) }
            memcpy(storage, &full, MemoryLayout<sockaddr_un>.size)
            return 0
        }
        let socket = try FileDescriptor(socket: AF_UNIX, SOCK_STREAM.rawValue)
        try address.bind(socket)
        #expect(try bound(socket.number) == "unix:\(path)")
        #expect(address.endpoint == nil)
    }

    @Test func `a socket without a name has none`() throws {
        let socket = try FileDescriptor(socket: AF_UNIX, SOCK_STREAM.rawValue)
        #expect(try bound(socket.number) == "unix")
    }

    /// What a socket is bound to.
    private func bound(_ number: Int32) throws -> String {
        try SocketAddress("getsockname") { getsockname(number, $0, $1) }.description
    }
}
