internal import EventLoop
internal import FoundationEssentials
internal import Server
internal import System

/// Asks a running server over HTTP, one request a connection; blocks the calling thread meanwhile.
///
/// The HTTP client of all commands. It reads what this server writes and nothing else.
struct ServerClient: Sendable {
    /// Where the server is asked.
    enum Place: Sendable {
        /// The control socket's path.
        case unix(path: String)
        /// An address of `admin.listen`.
        case tcp(SocketAddress)
    }

    /// Why there is no answer.
    enum Failure: Error {
        /// Nothing accepts connections there: the system's reason, and `errno`.
        case unreachable(reason: String, code: Int32)
        /// The connection ended before anything came, or nothing came in time.
        case noAnswer
        /// What came is not an answer of this server, or it ended in the middle.
        case unreadable
        /// The server refused, in its own words.
        case refused(String)
    }

    let place: Place
    /// For connecting and for each wait for bytes; nil waits for as long as it takes.
    var timeoutInSeconds: Int?

    /// Bytes of an answer that is read as a whole.
    private static let answerLimit = 1 << 20

    /// Sends a request without a body and decodes the JSON of its answer, whatever the answer's status.
    ///
    /// - Parameters:
    ///   - method: Such as `GET`.
    ///   - path: Such as `/readyz`.
    func answer<Answer: Decodable>(_ method: String, _ path: String) throws(Failure) -> Answer {
        var connection = try connect(sending: Self.head(method, path, ["Connection: close"]))
        var body = Data()
        guard connection.skipHead() else { throw connection.hasReceived ? .unreadable : .noAnswer }
        while body.count < Self.answerLimit, let chunk = connection.next() { body.append(chunk) }
        if let answer = try? OperationsJSON.decode(Answer.self, from: body) { return answer }
        if let refusal = try? OperationsJSON.decode(Refusal.self, from: body) { throw .refused(refusal.error) }
        throw .unreadable
    }

    /// Sends a request with a JSON body and lends each line of the answer's body as it comes.
    ///
    /// - Parameters:
    ///   - path: Such as `/store/get`.
    ///   - body: JSON.
    ///   - take: Takes a line without its end; returns false when it needs no more.
    func post(
        _ path: String, _ body: Data, _ take: (Data) throws(Failure) -> Bool
    ) throws(Failure) {
        let head = Self.head("POST", path, ["Content-Type: application/json", "Content-Length: \(body.count)"])
        // A server that refuses the request early does not read all of it, and its answer says why.
        var connection = try connect(sending: head + body)
        guard connection.skipHead() else { throw .noAnswer }
        while let line = connection.line() {
            guard try take(line) else { return }
        }
    }

    /// What the server answers instead of what it was asked for.
    private struct Refusal: Decodable {
        let error: String
    }

    private static func head(_ method: String, _ path: String, _ fields: [String]) -> Data {
        let lines = ["\(method) \(path) HTTP/1.1", "Host: localhost"] + fields
        return Data((lines.joined(separator: "\r\n") + "\r\n\r\n").utf8)
    }

    private func connect(sending request: Data) throws(Failure) -> Connection {
        do throws(BlockingSocket.Failure) {
            let socket =
                switch place {
                case .unix(let path): try BlockingSocket(unixPath: path, timeoutInSeconds: timeoutInSeconds)
                case .tcp(let address): try BlockingSocket(address, timeoutInSeconds: timeoutInSeconds)
                }
            socket.send(request)
            return Connection(socket)
        } catch {
            throw .unreachable(reason: error.reason, code: error.code)
        }
    }

    /// The answer as it comes.
    private struct Connection: ~Copyable {
        private let socket: BlockingSocket
        /// Received and not yet taken.
        private var buffer = Data()
        private(set) var hasReceived = false

        init(_ socket: consuming BlockingSocket) {
            self.socket = socket
        }

        /// Skips the answer's head; false when the connection ended before.
        mutating func skipHead() -> Bool {
            while let line = line() {
                if line.isEmpty { return true }
            }
            return false
        }

        /// The next bytes of the body; nil at the end.
        mutating func next() -> Data? {
            guard buffer.isEmpty else {
                defer { buffer = Data() }
                return buffer
            }
            return receive()
        }

        /// The next line without its end; nil when none is complete before the end.
        mutating func line() -> Data? {
            var searched = buffer.startIndex
            while true {
                if let end = buffer[searched...].firstIndex(of: UInt8(ascii: "\n")) {
                    var line = buffer[..<end]
                    if line.last == UInt8(ascii: "\r") { line = line.dropLast() }
                    buffer = Data(buffer[(end + 1)...])
                    return Data(line)
                }
                searched = buffer.endIndex
                guard let chunk = receive() else { return nil }
                buffer.append(chunk)
            }
        }

        private mutating func receive() -> Data? {
            guard let chunk = socket.receive() else { return nil }
            hasReceived = true
            return chunk
        }
    }
}
