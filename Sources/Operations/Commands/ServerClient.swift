import EventLoop
import FoundationEssentials
import Glibc
import Server
import System
import TokenStore

/// The HTTP client of all commands: sends one request per connection to a running server, and blocks until it is answered.
///
/// It understands only the answers of this server, not HTTP in general.
struct ServerClient: Sendable {
    /// Why there is no answer; the description is to be read after "the server" or the socket's path and a colon.
    enum Failure: Error, CustomStringConvertible {
        case unreachable(SystemError)
        /// The connection ended, or the timeout passed, before the answer.
        case noAnswer
        /// The answer is incomplete, or is not one of this server.
        case unreadable
        /// The server refused the request with this error text.
        case refused(String)

        /// Whether certainly no server listens there.
        var isAbsence: Bool {
            guard case .unreachable(let error) = self else { return false }
            return [ENOENT, ECONNREFUSED, ENOTDIR, ENAMETOOLONG].contains(error.code)
        }

        /// The description, if a process uses the data folder.
        var besideProcess: String {
            guard case .unreachable(let error) = self, [ENOENT, ENAMETOOLONG].contains(error.code)
            else { return "\(self)" }
            return """
                there is no such socket; if the process is another command, try again when it has ended; if it is a server, it could \
                not make one, as its log says: its path may have 107 bytes, and some file systems, such as sshfs and exFAT, have no sockets
                """
        }

        /// Whether this user may not connect.
        var isRefusal: Bool { if case .unreachable(let error) = self { error.isPermissionDenied } else { false } }

        var description: String {
            switch self {
            case .unreachable where isAbsence: "no server listens there"
            case .unreachable where isRefusal:
                "this user may not connect to it; run this as root or as the server's user"
            case .unreachable(let error): "connecting failed (\(error.reason))"
            case .noAnswer: "no answer came; the server may have ended, hang, or be busy with eight other commands"
            case .unreadable: "the program that answers there is not token-cache, or another version of it"
            case .refused(let reason): reason
            }
        }
    }

    /// The control socket's.
    let path: String
    private let timeoutInSeconds: Int
    private let outlastsWork: Bool
    /// A timeout with which a server that hangs is noticed soon.
    static let shortTimeoutInSeconds = 5

    /// - Parameters:
    ///   - directory: The server's data folder.
    ///   - timeoutInSeconds: For connecting, for each wait for bytes, and for a whole answer.
    ///   - outlastsWork: Whether the reply to a request for the store may take longer, as long as the server says that it works on it.
    init(in directory: String, timeoutInSeconds: Int = 60, outlastsWork: Bool = false) {
        path = ControlSocketAddress.path(in: directory)
        (self.timeoutInSeconds, self.outlastsWork) = (timeoutInSeconds, outlastsWork)
    }

    /// The largest head of an answer, in bytes: another program may answer, and without end.
    private static let headLimit = 64 << 10
    /// The largest answer that is read as a whole, in bytes.
    private static let answerLimit = 1 << 20

    /// Sends a request without a body and decodes the JSON of its answer, whatever the answer's status.
    ///
    /// - Parameters:
    ///   - method: Such as `GET`.
    ///   - path: Such as `/readyz`.
    func answer<Answer: Decodable>(_ method: String, _ path: String) throws(Failure) -> Answer {
        var connection = try connect(sending: Self.head(method, path))
        try connection.skipHead()
        guard let text = connection.line(upTo: Self.answerLimit) else { throw .unreadable }
        if let answer = try? OperationsJSON.decode(Answer.self, from: text) { return answer }
        let error = (try? OperationsJSON.decode(ControlLine<NoReply>.self, from: text))?.error
        throw error.map { .refused($0) } ?? .unreadable
    }

    /// Sends a request for the store, and waits for the reply.
    ///
    /// - Parameters:
    ///   - request: Sent as JSON.
    ///   - progress: Called repeatedly with the progress of the work.
    func perform<Request: StoreRequest>(
        _ request: Request, _ progress: (StoreProgress) -> Void = { _ in }
    ) throws(Failure) -> Request.Reply {
        guard let body = try? OperationsJSON.encode(request) else { throw .refused("the request cannot be encoded") }
        guard body.count <= ControlSocketAddress.bodyLimit else {
            throw .refused(
                """
                this takes \(body.count >> 20) MiB as JSON, and a running server accepts requests of up to \
                \(ControlSocketAddress.bodyLimit >> 20) MiB; stop the server, do it then, and start it again
                """
            )
        }
        let fields = ["Content-Type: application/json", "Content-Length: \(body.count)"]
        // A server that refuses the request early does not read all of it, and its answer says why.
        var connection = try answered(Self.head("POST", Request.path, fields) + body)
        var isUnreadable = false
        while let text = connection.line() {
            guard let line = try? OperationsJSON.decode(ControlLine<Request.Reply>.self, from: text) else {
                // Of another version, whose work must not end because its progress cannot be read.
                isUnreadable = true
                continue
            }
            if let error = line.error { throw .refused(error) }
            if let done = line.progress { progress(done) }
            if let reply = line.reply { return reply }
        }
        throw isUnreadable ? .unreadable : .noAnswer
    }

    private static func head(_ method: String, _ path: String, _ fields: [String] = []) -> Data {
        let lines = ["\(method) \(path) HTTP/1.1", "Host: localhost"] + fields
        return Data((lines.joined(separator: "\r\n") + "\r\n\r\n").utf8)
    }

    /// Whether a program listens at the socket, even one to which this user may not connect.
    ///
    /// The socket alone proves nothing: a server that was killed leaves it behind.
    var hasListener: Bool {
        do {
            _ = try connect(sending: Data())
            return true
        } catch {
            return !error.isAbsence
        }
    }

    /// A connection on which the head of the answer has been read.
    ///
    /// A server that is working for eight other commands closes further connections at once. Most commands are short, so this tries
    /// again for up to ten seconds.
    private func answered(_ request: Data) throws(Failure) -> Connection {
        let end = MonotonicTime.now + Duration.seconds(10)
        while true {
            let begin = MonotonicTime.now
            var connection = try connect(sending: request)
            do {
                try connection.skipHead()
                return connection
            } catch {
                guard case .noAnswer = error, .now < begin + Duration.seconds(1), .now < end else { throw error }
            }
            usleep(100_000)
        }
    }

    private func connect(sending request: Data) throws(Failure) -> Connection {
        do {
            let address = try SocketAddress(name: path, call: "connect")
            var connection = Connection(try address.connect(timeoutInSeconds: timeoutInSeconds))
            connection.send(Array(request))
            // A program that sends a byte now and then would otherwise keep the command for as long as it likes.
            if !outlastsWork { connection.deadline = .now + Nanoseconds(.seconds(timeoutInSeconds)) }
            return connection
        } catch {
            throw .unreachable(error)
        }
    }

    /// A connected socket with blocking calls, each of which ends with the timeout.
    private struct Connection: ~Copyable {
        private let descriptor: FileDescriptor
        /// Received bytes that have not been read yet.
        private var buffer = Data()
        private var hasReceived = false
        /// When reading ends, whatever has arrived by then.
        var deadline = MonotonicTime.never

        init(_ descriptor: consuming FileDescriptor) {
            self.descriptor = descriptor
        }

        /// Sends the bytes; stops early if the server closes the connection or the timeout passes.
        func send(_ bytes: [UInt8]) {
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

        /// Skips the answer's head; fails if the connection ends before the end of the head, or if that is too large.
        mutating func skipHead() throws(Failure) {
            var room = ServerClient.headLimit
            while room > 0, let line = line(upTo: room) {
                if line.isEmpty { return }
                room -= line.count
            }
            throw hasReceived ? .unreadable : .noAnswer
        }

        /// The next line without its newline; nil if the connection ends before the end of the line.
        ///
        /// - Parameter limit: Bytes that may arrive without a newline; after more, the line has no end.
        mutating func line(upTo limit: Int = .max) -> Data? {
            var searched = buffer.startIndex
            while true {
                if let end = buffer[searched...].firstIndex(of: UInt8(ascii: "\n")) {
                    var line = buffer[..<end]
                    if line.last == UInt8(ascii: "\r") { line = line.dropLast() }
                    buffer = Data(buffer[(end + 1)...])
                    return Data(line)
                }
                searched = buffer.endIndex
                guard buffer.count < limit, let chunk = receive() else { return nil }
                buffer.append(chunk)
            }
        }

        private mutating func receive() -> Data? {
            guard MonotonicTime.now < deadline else { return nil }
            var chunk = [UInt8](repeating: 0, count: 1 << 16)
            let count = retryingInterrupts { unsafe recv(descriptor.number, &chunk, chunk.count, 0) }
            guard count > 0 else { return nil }
            hasReceived = true
            return Data(chunk[..<count])
        }
    }
}
