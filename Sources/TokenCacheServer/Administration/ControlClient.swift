internal import Foundation
internal import Glibc
internal import TokenStore

/// Asks a running server over its control socket.
struct ControlClient: Sendable {
    let path: String

    /// What came instead of a reply.
    enum Failure: Error {
        /// Nobody listens; the reason is the system's.
        case unreachable(String)
        /// The server's own words.
        case refused(String)
        /// The server went away in the middle.
        case interrupted
    }

    /// Sends a request and waits for its reply, on the calling thread.
    func perform<Request: StoreRequest>(
        _ request: Request, _ progress: (StoreAdministrator.Progress) -> Void
    ) throws(Failure) -> Request.Reply {
        let socket = try connect()
        defer { close(socket) }
        guard let body = try? JSONEncoder().encode(request) else { throw .refused("the request cannot be written") }
        let head = """
            POST /store/\(Request.name) HTTP/1.1\r
            Host: localhost\r
            Content-Type: application/json\r
            Content-Length: \(body.count)\r
            \r\n
            """
        // A server that refuses it early does not read all of it, and says why.
        send(Data(head.utf8) + body, to: socket)
        var lines = Lines(socket)
        while let line = lines.next(), !line.isEmpty {}
        while let text = lines.next() {
            guard let line = try? JSONDecoder().decode(ControlLine<Request.Reply>.self, from: text) else { continue }
            if let reply = line.reply { return reply }
            if let error = line.error { throw .refused(error) }
            if let done = line.progress { progress(done) }
        }
        throw .interrupted
    }

    private func connect() throws(Failure) -> Int32 {
        let number = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        guard number >= 0 else { throw .unreachable(Self.lastReason()) }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        let bytes = Array(path.utf8)
        guard bytes.count < MemoryLayout.size(ofValue: address.sun_path) else {
            close(number)
            throw .unreachable("the path is too long for a socket")
        }
        unsafe withUnsafeMutableBytes(of: &address.sun_path) { unsafe $0.copyBytes(from: bytes) }
        let status = unsafe withUnsafePointer(to: address) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                unsafe Glibc.connect(number, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        guard status == 0 else {
            let reason = Self.lastReason()
            close(number)
            throw .unreachable(reason)
        }
        return number
    }

    private func send(_ data: Data, to socket: Int32) {
        let bytes = Array(data)
        var sent = 0
        while sent < bytes.count {
            let count = unsafe bytes.withUnsafeBytes { bytes in
                unsafe Glibc.send(
                    socket, bytes.baseAddress?.advanced(by: sent), bytes.count - sent, Int32(MSG_NOSIGNAL)
                )
            }
            if count < 0 && errno == EINTR { continue }
            guard count > 0 else { return }
            sent += count
        }
    }

    private static func lastReason() -> String {
        unsafe String(cString: strerror(errno))
    }

    /// What comes over a socket, a line at a time and without its end.
    private struct Lines {
        private let socket: Int32
        private var buffer = Data()

        init(_ socket: Int32) {
            self.socket = socket
        }

        mutating func next() -> Data? {
            var searched = buffer.startIndex
            while true {
                if let end = buffer[searched...].firstIndex(of: UInt8(ascii: "\n")) {
                    var line = buffer[..<end]
                    if line.last == UInt8(ascii: "\r") { line = line.dropLast() }
                    buffer = Data(buffer[(end + 1)...])
                    return Data(line)
                }
                searched = buffer.endIndex
                var chunk = [UInt8](repeating: 0, count: 1 << 16)
                let count = unsafe recv(socket, &chunk, chunk.count, 0)
                if count < 0 && errno == EINTR { continue }
                guard count > 0 else { return nil }
                buffer.append(contentsOf: chunk[..<count])
            }
        }
    }
}
