internal import Foundation
internal import SQLiteStore
internal import TokenStore

/// Asks a running server over its control socket.
struct ControlClient: Sendable {
    let path: String
    /// For each line of an answer; nil waits for as long as the work takes.
    var patienceInSeconds: Int?

    /// What came instead of a reply.
    enum Failure: Error {
        /// Nobody listens; the reason is the system's.
        case unreachable(String)
        /// The server's own words.
        case refused(String)
        /// The server went away in the middle, or is not done in time.
        case interrupted
    }

    /// Sends a request and waits for its reply, on the calling thread.
    func perform<Request: StoreRequest>(
        _ request: Request, _ progress: (StoreAdministrator.Progress) -> Void
    ) throws(Failure) -> Request.Reply {
        let socket: BlockingSocket
        do throws(BlockingSocket.Failure) {
            socket = try BlockingSocket(unixPath: path, patienceInSeconds: patienceInSeconds)
        } catch {
            throw .unreachable(error.reason)
        }
        guard let body = try? JSONEncoder().encode(request) else { throw .refused("the request cannot be written") }
        guard body.count <= ControlConnection.bodyLimit else {
            throw .refused(
                """
                this takes \(body.count >> 20) MiB as JSON, and a running server takes requests of up to \
                \(ControlConnection.bodyLimit >> 20) MiB; stop the server, do it then, and start it again
                """
            )
        }
        let head = """
            POST /store/\(Request.name) HTTP/1.1\r
            Host: localhost\r
            Content-Type: application/json\r
            Content-Length: \(body.count)\r
            \r\n
            """
        // A server that refuses it early does not read all of it, and says why.
        socket.send(Data(head.utf8) + body)
        var lines = Lines()
        while let line = lines.next(from: socket), !line.isEmpty {}
        while let text = lines.next(from: socket) {
            guard let line = try? JSONDecoder().decode(ControlLine<Request.Reply>.self, from: text) else { continue }
            if let reply = line.reply { return reply }
            if let error = line.error { throw .refused(error) }
            if let done = line.progress { progress(done) }
        }
        throw .interrupted
    }

    /// What comes over a socket, a line at a time and without its end.
    private struct Lines {
        private var buffer = Data()

        mutating func next(from socket: borrowing BlockingSocket) -> Data? {
            var searched = buffer.startIndex
            while true {
                if let end = buffer[searched...].firstIndex(of: UInt8(ascii: "\n")) {
                    var line = buffer[..<end]
                    if line.last == UInt8(ascii: "\r") { line = line.dropLast() }
                    buffer = Data(buffer[(end + 1)...])
                    return Data(line)
                }
                searched = buffer.endIndex
                guard let chunk = socket.receive() else { return nil }
                buffer.append(chunk)
            }
        }
    }
}
