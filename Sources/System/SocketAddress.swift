package import Glibc

/// The address of a socket: IPv4 or IPv6 with a port, or that of a Unix socket (unix(7)).
package struct SocketAddress: Sendable, CustomStringConvertible {
    /// Has room for the structure of each family.
    private var storage = sockaddr_un()
    private let length: socklen_t

    /// Why a host has no address.
    package struct ResolutionError: Error, CustomStringConvertible {
        package let description: String
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
            throw ResolutionError(description: unsafe String(cString: gai_strerror(status)))
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
        guard Int(length) <= MemoryLayout<sockaddr_un>.size else { return nil }
        self.length = length
        unsafe withUnsafeMutableBytes(of: &storage) { bytes in
            unsafe bytes.copyMemory(from: UnsafeRawBufferPointer(start: pointer, count: Int(length)))
        }
    }

    /// Fills an address by a system call such as `getsockname` or `accept4`.
    package init(
        _ call: String,
        _ fill: (UnsafeMutablePointer<sockaddr>, UnsafeMutablePointer<socklen_t>) -> Int32
    ) throws(SystemError) {
        var storage = sockaddr_un()
        var length = socklen_t(MemoryLayout<sockaddr_un>.size)
        let result = unsafe withUnsafeMutablePointer(to: &storage) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { unsafe fill($0, &length) }
        }
        guard result >= 0 else { throw SystemError.last(call) }
        (self.storage, self.length) = (storage, length)
    }

    /// The address of a Unix socket's file.
    ///
    /// - Parameters:
    ///   - path: At most 107 bytes.
    ///   - call: The call that the error names.
    package init(path: String, call: String = "bind") throws(SystemError) {
        try self.init(Array(path.utf8) + [0], call)
    }

    /// - Parameters:
    ///   - name: A path, or `@` and a name in the abstract namespace.
    ///   - call: The call that the error names.
    package init(name: String, call: String) throws(SystemError) {
        // An abstract name begins with a NUL byte, and its end is given by the length of the address.
        try self.init(name.hasPrefix("@") ? [0] + Array(name.utf8.dropFirst()) : Array(name.utf8) + [0], call)
    }

    private init(_ bytes: [UInt8], _ call: String) throws(SystemError) {
        let capacity = MemoryLayout.size(ofValue: storage.sun_path)
        guard bytes.count <= capacity else { throw SystemError(call: call, code: ENAMETOOLONG) }
        length = socklen_t(MemoryLayout<sa_family_t>.size + bytes.count)
        storage.sun_family = sa_family_t(AF_UNIX)
        unsafe withUnsafeMutableBytes(of: &storage.sun_path) { unsafe $0.copyBytes(from: bytes) }
    }

    /// Calls `body` with the address in the form that system calls take.
    package func withPointer<Result>(_ body: (UnsafePointer<sockaddr>, socklen_t) -> Result) -> Result {
        unsafe withUnsafePointer(to: storage) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { unsafe body($0, length) }
        }
    }

    package var family: Int32 { Int32(storage.sun_family) }

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

    /// `127.0.0.1:8080`, `[::1]:8080`, `unix:/run/http.sock`, `unix:@name`, or `unix` for a socket without a name.
    package var description: String {
        if isUnix {
            let start = MemoryLayout<sa_family_t>.size
            guard Int(length) > start else { return "unix" }
            var bytes = unsafe withUnsafeBytes(of: storage) { unsafe Array($0[start..<Int(length)]) }
            if bytes[0] == 0 { bytes[0] = UInt8(ascii: "@") }
            return "unix:" + String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
        }
        let (host, port) = numeric
        return family == AF_INET6 ? "[\(host)]:\(port)" : "\(host):\(port)"
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

extension SocketAddress {
    /// Connects a blocking stream socket to the address, for programs that do nothing but wait for an answer.
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
