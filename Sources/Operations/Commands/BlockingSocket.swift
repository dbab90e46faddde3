internal import EventLoop
internal import FoundationEssentials
internal import Glibc

/// A connected socket of a command that has nothing else to do than to wait for an answer.
struct BlockingSocket: ~Copyable {
    private let descriptor: FileDescriptor

    /// Why there is no connection, in the system's words.
    struct Failure: Error {
        let reason: String
        /// `errno`, 0 where no call failed.
        var code: Int32 = 0
    }

    /// Connects to a Unix socket.
    ///
    /// - Parameters:
    ///   - path: Where to.
    ///   - timeoutInSeconds: For connecting, and for each call; nil waits for as long as it takes.
    init(unixPath path: String, timeoutInSeconds: Int?) throws(Failure) {
        descriptor = try Self.connect(path, timeoutInSeconds)
    }

    /// Connects over TCP.
    ///
    /// - Parameters:
    ///   - address: Where to.
    ///   - timeoutInSeconds: For connecting, and for each call.
    init(_ address: SocketAddress, timeoutInSeconds: Int?) throws(Failure) {
        descriptor = try Self.connect(address, timeoutInSeconds)
    }

    private static func connect(_ address: SocketAddress, _ timeout: Int?) throws(Failure) -> FileDescriptor {
        do throws(SystemError) {
            return try address.connect(timeoutInSeconds: timeout)
        } catch {
            throw Failure(reason: unsafe String(cString: strerror(error.code)))
        }
    }

    private static func connect(_ path: String, _ timeout: Int?) throws(Failure) -> FileDescriptor {
        let number = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        guard number >= 0 else { throw lastFailure() }
        let descriptor = FileDescriptor(owning: number)
        if let timeout { descriptor.setTimeout(seconds: timeout) }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        let bytes = Array(path.utf8)
        guard bytes.count < MemoryLayout.size(ofValue: address.sun_path) else {
            throw Failure(reason: "the path is too long for a socket", code: ENAMETOOLONG)
        }
        unsafe withUnsafeMutableBytes(of: &address.sun_path) { unsafe $0.copyBytes(from: bytes) }
        let status = unsafe withUnsafePointer(to: address) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                unsafe Glibc.connect(number, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        guard status == 0 else { throw lastFailure() }
        return descriptor
    }

    /// Sends all of it, or as much as the other side takes before it goes.
    func send(_ data: Data) {
        let bytes = Array(data)
        var sent = 0
        while sent < bytes.count {
            let count = unsafe bytes.withUnsafeBytes { bytes in
                unsafe Glibc.send(
                    descriptor.number, bytes.baseAddress?.advanced(by: sent), bytes.count - sent, Int32(MSG_NOSIGNAL)
                )
            }
            if count < 0 && errno == EINTR { continue }
            guard count > 0 else { return }
            sent += count
        }
    }

    /// The next bytes; nil when nothing more comes, or not in time.
    func receive() -> Data? {
        var chunk = [UInt8](repeating: 0, count: 1 << 16)
        while true {
            let count = unsafe recv(descriptor.number, &chunk, chunk.count, 0)
            if count < 0 && errno == EINTR { continue }
            return count > 0 ? Data(chunk[..<count]) : nil
        }
    }

    private static func lastFailure() -> Failure {
        let code = errno
        return Failure(reason: unsafe String(cString: strerror(code)), code: code)
    }
}
