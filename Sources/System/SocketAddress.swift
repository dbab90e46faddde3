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
            let address = unsafe try? SocketAddress("getaddrinfo") { storage, length in
                // An address of IPv4 or IPv6, for which there is room.
                unsafe length.pointee = entry.pointee.ai_addrlen
                unsafe memcpy(storage, entry.pointee.ai_addr, Int(entry.pointee.ai_addrlen))
                return 0
            }
            if let address { addresses.append(address) }
            unsafe next = entry.pointee.ai_next
        }
        return addresses
    }

    /// Fills an address by a call such as `getsockname` or `accept4`.
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

    /// The address of a Unix socket.
    ///
    /// - Parameters:
    ///   - name: A path of at most 107 bytes, or `@` and a name in the abstract namespace.
    ///   - call: The call that the error names.
    package init(name: String, call: String) throws(SystemError) {
        // An abstract name begins with a NUL byte, and its end is given by the length of the address.
        let bytes = name.hasPrefix("@") ? [0] + Array(name.utf8.dropFirst()) : Array(name.utf8) + [0]
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

    /// The IP address, and the port in host byte order; nil for a Unix socket.
    package var endpoint: (address: IPAddress, port: UInt16)? {
        if isUnix { return nil }
        let bytes = bytes
        // Family and port, and for IPv6 the flow label, precede the address.
        let address = IPAddress(networkOrder: family == AF_INET ? bytes[4..<8] : bytes[8..<24])
        return address.map { ($0, UInt16(bytes[2]) << 8 | UInt16(bytes[3])) }
    }

    var isUnix: Bool { family == AF_UNIX }

    /// As system calls take it; the kernel may give a client's path a length for which there is no room (unix(7)).
    private var bytes: [UInt8] { unsafe withUnsafeBytes(of: storage) { unsafe Array($0.prefix(Int(length))) } }

    /// `127.0.0.1:8080`, `[::1]:8080`, `unix:/run/http.sock`, `unix:@name`, or `unix` for a socket without a name.
    package var description: String {
        if isUnix {
            let start = MemoryLayout<sa_family_t>.size
            guard Int(length) > start else { return "unix" }
            var name = Array(bytes[start...])
            if name[0] == 0 { name[0] = UInt8(ascii: "@") }
            return "unix:" + String(decoding: name.prefix { $0 != 0 }, as: UTF8.self)
        }
        guard let (address, port) = endpoint else { return "unknown" }
        return address.isIPv4 ? "\(address):\(port)" : "[\(address)]:\(port)"
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

/// An IPv4 or IPv6 address; an IPv4 address is the same as its form in IPv6 (`::ffff:192.0.2.1`, RFC 4291).
package struct IPAddress: Hashable, Sendable, CustomStringConvertible {
    /// The first eight bytes, as a number: of an IPv6 address usually the network (RFC 4291, section 2.5.4).
    package let high: UInt64
    /// The last eight bytes, as a number.
    package let low: UInt64

    private init(high: UInt64, low: UInt64) {
        self.high = high
        self.low = low
    }

    /// Reads an address as `inet_pton` does, without brackets, port or zone; nil if it is not an address.
    package init?(_ text: String) {
        // `inet_pton` takes a NUL for the end of the text, and would ignore what follows it.
        guard !text.utf8.contains(0) else { return nil }
        // Only an IPv6 address has colons.
        let isIPv4 = !text.utf8.contains(UInt8(ascii: ":"))
        var bytes = [UInt8](repeating: 0, count: isIPv4 ? 4 : 16)
        guard unsafe inet_pton(isIPv4 ? AF_INET : AF_INET6, text, &bytes) == 1 else { return nil }
        self.init(networkOrder: bytes[...])
    }

    /// Reads an element of X-Forwarded-For: `192.0.2.1`, `192.0.2.1:80`, `[2001:db8::1]`, `[2001:db8::1]:80` or `2001:db8::1`.
    package static func hop(_ text: String) -> IPAddress? {
        if text.utf8.first == UInt8(ascii: "["), let close = text.firstIndex(of: "]") {
            return IPAddress(String(text[..<close].dropFirst()))
        }
        if let address = IPAddress(text) { return address }
        return text.lastIndex(of: ":").flatMap { IPAddress(String(text[..<$0])) }
    }

    /// Takes the 4 or 16 bytes of an address; nil for any other number of them.
    package init?(networkOrder bytes: ArraySlice<UInt8>) {
        let number = { (part: ArraySlice<UInt8>) in part.reduce(UInt64(0)) { $0 << 8 | UInt64($1) } }
        switch bytes.count {
        case 4: self.init(high: 0, low: 0xffff_0000_0000 | number(bytes))
        case 16: self.init(high: number(bytes.prefix(8)), low: number(bytes.suffix(8)))
        default: return nil
        }
    }

    /// The addresses that one client usually has: an IPv4 address is alone, of an IPv6 address the first 64 bits count.
    package var network: IPAddress { isIPv4 ? self : IPAddress(high: high, low: 0) }

    package var isIPv4: Bool { high == 0 && low >> 32 == 0xffff }

    /// 127.0.0.0/8 and `::1`.
    package var isLoopback: Bool { isIPv4 ? low >> 24 & 0xff == 127 : high == 0 && low == 1 }

    package var description: String {
        var text = [CChar](repeating: 0, count: Int(INET6_ADDRSTRLEN))
        // The last four bytes are those of IPv4.
        let (family, start) = isIPv4 ? (AF_INET, 12) : (AF_INET6, 0)
        _ = unsafe withUnsafeBytes(of: (high.bigEndian, low.bigEndian)) { bytes in
            unsafe inet_ntop(family, bytes.baseAddress?.advanced(by: start), &text, socklen_t(text.count))
        }
        return String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}
