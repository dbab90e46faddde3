package import Glibc

/// An IPv4 or IPv6 address with a port, or the nameless other end of a Unix socket.
package struct SocketAddress: ConnectableAddress, Sendable, CustomStringConvertible {
    // The larger of the two families' structures; every connection keeps one, so not the 128 bytes of sockaddr_storage.
    private var storage: sockaddr_in6
    private let length: socklen_t

    /// Why a host has no address.
    package struct ResolutionError: Error, Hashable, CustomStringConvertible {
        package let host: String
        package let reason: String

        package var description: String { "\(host): \(reason)" }
    }

    /// All addresses of a host, in the system's order (getaddrinfo(3)).
    ///
    /// - Parameters:
    ///   - host: A literal address without brackets, or a name; empty means every address of the machine.
    ///   - port: In host byte order; 0 lets the system choose when listening.
    package static func resolve(host: String, port: UInt16) throws(ResolutionError) -> [SocketAddress] {
        var hints = unsafe addrinfo()
        unsafe hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
        unsafe hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV
        var first: UnsafeMutablePointer<addrinfo>?
        let status = unsafe getaddrinfo(host.isEmpty ? nil : host, String(port), &hints, &first)
        guard status == 0 else {
            throw ResolutionError(host: host, reason: unsafe String(cString: gai_strerror(status)))
        }
        defer { unsafe freeaddrinfo(first) }
        var addresses: [SocketAddress] = []
        var next = unsafe first
        while let entry = unsafe next {
            if let address = unsafe SocketAddress(entry.pointee.ai_addr, entry.pointee.ai_addrlen) {
                addresses.append(address)
            }
            unsafe next = entry.pointee.ai_next
        }
        return addresses
    }

    /// Copies an address; nil for families other than IPv4 and IPv6.
    private init?(_ pointer: UnsafeMutablePointer<sockaddr>?, _ length: socklen_t) {
        guard let pointer = unsafe pointer else { return nil }
        let family = Int32(unsafe pointer.pointee.sa_family)
        guard family == AF_INET || family == AF_INET6 else { return nil }
        var storage = sockaddr_in6()
        guard Int(length) <= MemoryLayout<sockaddr_in6>.size else { return nil }
        unsafe withUnsafeMutableBytes(of: &storage) { bytes in
            unsafe bytes.copyMemory(from: UnsafeRawBufferPointer(start: pointer, count: Int(length)))
        }
        self.storage = storage
        self.length = length
    }

    /// Fills an address by a system call such as `getsockname` or `accept4`.
    package init(
        _ call: String,
        _ fill: (UnsafeMutablePointer<sockaddr>, UnsafeMutablePointer<socklen_t>) -> Int32
    ) throws(SystemError) {
        var storage = sockaddr_in6()
        var length = socklen_t(MemoryLayout<sockaddr_in6>.size)
        let result = unsafe withUnsafeMutablePointer(to: &storage) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { unsafe fill($0, &length) }
        }
        guard result >= 0 else { throw SystemError.last(call) }
        self.storage = storage
        self.length = length
    }

    package func withPointer<Result>(_ body: (UnsafePointer<sockaddr>, socklen_t) -> Result) -> Result {
        unsafe withUnsafePointer(to: storage) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { unsafe body($0, length) }
        }
    }

    package var family: Int32 { Int32(storage.sin6_family) }

    /// The address without brackets, for example `127.0.0.1` or `::1`; `unix` for a Unix socket.
    package var host: String { isUnix ? "unix" : numeric.host }

    /// In host byte order.
    package var port: UInt16 { UInt16(numeric.port) ?? 0 }

    /// The 4 or 16 bytes of the address in network order; none for a Unix socket.
    package var addressBytes: [UInt8] {
        let range =
            switch family {
            case AF_INET: 4..<8  // sin_addr, behind family and port
            case AF_INET6: 8..<24  // sin6_addr, behind family, port and flow label
            default: 0..<0
            }
        return unsafe withUnsafeBytes(of: storage) { unsafe Array($0[range]) }
    }

    package var isUnix: Bool { family == AF_UNIX }

    /// `127.0.0.1:8080`, `[::1]:8080` or `unix`.
    package var description: String {
        if isUnix { return "unix" }
        let (host, port) = numeric
        return family == AF_INET6 ? "[\(host)]:\(port)" : "\(host):\(port)"
    }

    /// True for 0.0.0.0 and `::`, which stand for all addresses of their family.
    package var isWildcard: Bool { !isUnix && addressBytes.allSatisfy { $0 == 0 } }

    /// Whether only one of two can be listened on.
    ///
    /// Port 0 conflicts with nothing, and an IPv6 listener leaves IPv4 alone.
    package func conflicts(with other: SocketAddress) -> Bool {
        guard !isUnix, family == other.family, port == other.port, port != 0 else { return false }
        return isWildcard || other.isWildcard || description == other.description
    }

    /// True for 127.0.0.0/8 and `::1`, which only this machine reaches.
    package var isLoopback: Bool {
        let host = numeric.host
        return host.hasPrefix("127.") || host == "::1" || host.hasPrefix("::ffff:127.")
    }

    private var numeric: (host: String, port: String) {
        var host: [CChar] = Array(repeating: 0, count: Int(NI_MAXHOST))
        var port: [CChar] = Array(repeating: 0, count: Int(NI_MAXSERV))
        let status = unsafe withPointer { pointer, length in
            unsafe getnameinfo(
                pointer, length, &host, socklen_t(host.count), &port, socklen_t(port.count),
                NI_NUMERICHOST | NI_NUMERICSERV
            )
        }
        guard status == 0 else { return ("unknown", "0") }
        return (Self.text(host), Self.text(port))
    }

    private static func text(_ characters: [CChar]) -> String {
        String(decoding: characters.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}

/// An address that a socket can be bound or connected to.
package protocol ConnectableAddress {
    /// Such as `AF_UNIX`.
    var family: Int32 { get }

    /// Lends the address in the form that `bind` and `connect` take.
    func withPointer<Result>(_ body: (UnsafePointer<sockaddr>, socklen_t) -> Result) -> Result
}

extension ConnectableAddress {
    /// A blocking stream socket that is connected to the address, for programs that do nothing but wait for an answer.
    ///
    /// - Parameter timeoutInSeconds: For connecting, and for each later call; nil waits without limit.
    package func connect(timeoutInSeconds: Int?) throws(SystemError) -> FileDescriptor {
        let descriptor = try FileDescriptor(socket: family, SOCK_STREAM.rawValue)
        if let timeoutInSeconds { try descriptor.setTimeout(seconds: timeoutInSeconds) }
        try connect(descriptor)
        return descriptor
    }

    /// Connects a socket.
    package func connect(_ descriptor: borrowing FileDescriptor) throws(SystemError) {
        let number = descriptor.number
        guard unsafe withPointer({ unsafe Glibc.connect(number, $0, $1) }) == 0 else {
            throw SystemError.last("connect")
        }
    }

    /// Binds a socket to the address.
    package func bind(_ descriptor: borrowing FileDescriptor) throws(SystemError) {
        let number = descriptor.number
        guard unsafe withPointer({ unsafe Glibc.bind(number, $0, $1) }) == 0 else { throw SystemError.last("bind") }
    }
}

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
