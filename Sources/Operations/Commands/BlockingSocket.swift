internal import EventLoop
internal import FoundationEssentials
internal import Glibc
internal import System

/// A connected socket with blocking calls, for commands that only wait for an answer.
struct BlockingSocket: ~Copyable {
    private let descriptor: FileDescriptor

    /// Why the connection failed.
    struct Failure: Error {
        /// The system's error text.
        let reason: String
        /// `errno`; 0 if no system call failed.
        var code: Int32 = 0
    }

    /// Connects to a Unix socket.
    ///
    /// - Parameters:
    ///   - path: The socket's path.
    ///   - timeoutInSeconds: The limit for connecting and for each call; nil for none.
    init(unixPath path: String, timeoutInSeconds: Int?) throws(Failure) {
        do throws(SystemError) {
            let address = try UnixSocketAddress(path: path, call: "connect")
            descriptor = try address.connect(timeoutInSeconds: timeoutInSeconds)
        } catch {
            throw Failure(
                reason: error.code == ENAMETOOLONG ? "the path is too long for a socket" : error.reason,
                code: error.code)
        }
    }

    /// Connects over TCP.
    ///
    /// - Parameters:
    ///   - address: The address to connect to.
    ///   - timeoutInSeconds: The limit for connecting and for each call; nil for none.
    init(_ address: SocketAddress, timeoutInSeconds: Int?) throws(Failure) {
        do throws(SystemError) {
            descriptor = try address.connect(timeoutInSeconds: timeoutInSeconds)
        } catch {
            throw Failure(reason: error.reason)
        }
    }

    /// Sends the data; stops early if the server closes the connection or the timeout passes.
    func send(_ data: Data) {
        let bytes = Array(data)
        var sent = 0
        while sent < bytes.count {
            let count = unsafe bytes.withUnsafeBytes { bytes in
                retryingInterrupts {
                    unsafe Glibc.send(
                        descriptor.number, bytes.baseAddress?.advanced(by: sent), bytes.count - sent,
                        Int32(MSG_NOSIGNAL)
                    )
                }
            }
            guard count > 0 else { return }
            sent += count
        }
    }

    /// The next bytes; nil at the end of the connection or after the timeout.
    func receive() -> Data? {
        var chunk = [UInt8](repeating: 0, count: 1 << 16)
        let count = retryingInterrupts { unsafe recv(descriptor.number, &chunk, chunk.count, 0) }
        return count > 0 ? Data(chunk[..<count]) : nil
    }
}
