package import Glibc

/// The address of a Unix socket (unix(7)): the path of its file, or a name in the abstract namespace.
package struct UnixSocketAddress: ConnectableAddress, Sendable {
    private var storage = sockaddr_un()
    private let length: socklen_t

    package var family: Int32 { AF_UNIX }

    /// - Parameters:
    ///   - path: At most 107 bytes.
    ///   - call: What the error names.
    package init(path: String, call: String = "bind") throws(SystemError) {
        try self.init(Array(path.utf8) + [0], call: call)
    }

    /// - Parameters:
    ///   - name: A path, or `@` and a name in the abstract namespace.
    ///   - call: What the error names.
    package init(name: String, call: String) throws(SystemError) {
        guard name.hasPrefix("@") else {
            try self.init(path: name, call: call)
            return
        }
        // Begins with a NUL byte and has none at its end: the length is part of the name.
        try self.init([0] + Array(name.utf8.dropFirst()), call: call)
    }

    private init(_ bytes: [UInt8], call: String) throws(SystemError) {
        let capacity = MemoryLayout.size(ofValue: storage.sun_path)
        guard bytes.count <= capacity else { throw SystemError(call: call, code: ENAMETOOLONG) }
        storage.sun_family = sa_family_t(AF_UNIX)
        unsafe withUnsafeMutableBytes(of: &storage.sun_path) { unsafe $0.copyBytes(from: bytes) }
        length = socklen_t(MemoryLayout<sa_family_t>.size + bytes.count)
    }

    /// What a Unix socket is bound to.
    package init(boundBy descriptor: Int32) throws(SystemError) {
        var storage = sockaddr_un()
        var length = socklen_t(MemoryLayout<sockaddr_un>.size)
        let status = unsafe withUnsafeMutablePointer(to: &storage) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                unsafe getsockname(descriptor, $0, &length)
            }
        }
        guard status == 0 else { throw SystemError.last("getsockname") }
        (self.storage, self.length) = (storage, length)
    }

    /// The path, or `@` and the name in the abstract namespace; nil for a socket without a name.
    package var name: String? {
        let start = MemoryLayout<sa_family_t>.size
        guard Int(length) > start else { return nil }
        var bytes = unsafe withUnsafeBytes(of: storage) { unsafe Array($0[start..<Int(length)]) }
        if bytes[0] == 0 { bytes[0] = UInt8(ascii: "@") }
        return String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
    }

    package func withPointer<Result>(_ body: (UnsafePointer<sockaddr>, socklen_t) -> Result) -> Result {
        unsafe withUnsafePointer(to: storage) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { unsafe body($0, length) }
        }
    }
}
