internal import EventLoop
internal import FoundationEssentials
internal import Glibc
internal import System

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
    ///   - address: Where to.
    ///   - timeoutInSeconds: For connecting, and for each call.
    init(_ address: SocketAddress, timeoutInSeconds: Int?) throws(Failure) {
        do throws(SystemError) {
            descriptor = try address.connect(timeoutInSeconds: timeoutInSeconds)
        } catch {
            throw Failure(reason: error.reason)
        }
    }

    /// Sends all of it, or as much as the other side takes before it goes.
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

    /// The next bytes; nil if nothing more comes, or not in time.
    func receive() -> Data? {
        var chunk = [UInt8](repeating: 0, count: 1 << 16)
        let count = retryingInterrupts { unsafe recv(descriptor.number, &chunk, chunk.count, 0) }
        return count > 0 ? Data(chunk[..<count]) : nil
    }
}
