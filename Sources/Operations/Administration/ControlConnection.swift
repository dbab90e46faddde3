import Dispatch
import EventLoop
import FoundationEssentials
import HTTP
import Logging
import Server
import Synchronization
import System
import TokenStore

/// Serves a connection to the control socket: receives one request, and sends its progress and its reply.
///
/// Belongs to its loop's thread.
struct ControlConnection: ~Copyable {
    private var stream: AdministrationStream
    private let loop: EventLoop
    private let endpoints: AdministrationEndpoints
    private let requester: Requester
    private let logger: Logger

    private static let limits: RequestLimits = {
        var limits = RequestLimits()
        limits.body = ControlSocketAddress.bodyLimit
        return limits
    }()
    /// The shortest time between two progress lines.
    private static let progressInterval = Duration.milliseconds(100)

    private init(
        _ stream: consuming AdministrationStream, from requester: Requester, on loop: EventLoop,
        _ endpoints: AdministrationEndpoints, _ logger: Logger
    ) {
        self.requester = requester
        self.stream = stream
        self.loop = loop
        self.endpoints = endpoints
        self.logger = logger
    }

    /// Serves a connection from its first byte to its last.
    ///
    /// - Parameters:
    ///   - connection: The connection; this call closes its socket.
    ///   - loop: The calling task's loop.
    ///   - endpoints: Answers requests for the server, and has its store.
    ///   - logger: Receives what the requests did.
    static func serve(
        _ connection: AdministrationConnections.Connection, on loop: EventLoop, _ endpoints: AdministrationEndpoints,
        _ logger: Logger
    ) async {
        let requester = Requester(connectedTo: connection.descriptor)
        guard let stream = AdministrationStream(connection, on: loop, limits: limits) else { return }
        var connection = ControlConnection(stream, from: requester, on: loop, endpoints, logger)
        await connection.serve()
    }

    private mutating func serve() async {
        switch await stream.receive() {
        case .request(let request):
            if let answer = await endpoints.answer(request, from: requester) {
                _ = await stream.send(answer.encoded(omitsBody: request.method == "HEAD", closes: true))
            } else {
                await answer(request.method, request.path)
            }
        case .refused(let refusal): await refuse(refusal.status, refusal.message)
        case .closed: return
        }
        stream.finishSending()
    }

    // MARK: - Answering

    private static let prefix = "/store/"
    /// All requests; the server refuses any that is missing here.
    private static let requests: [any StoreRequest.Type] = [
        FetchToken.self, StoreTokens.self, RemoveTokens.self, ListTokens.self, StatisticsOfStore.self, VerifyStore.self,
        BackUpStore.self, RecordBackup.self, RekeyStore.self, ListKeys.self, AddKey.self, UseKey.self, RetireKey.self,
        AddSession.self, ListSessions.self, RemoveSessions.self, EraseUser.self,
    ]

    private mutating func answer(_ method: String, _ path: String) async {
        if path == APIKeyChange.path && method == "POST" { return await noteAPIKeyChange() }
        guard path.hasPrefix(Self.prefix),
            let type = Self.requests.first(where: { $0.name == path.dropFirst(Self.prefix.count) })
        else {
            let names = Self.requests.map { Self.prefix + $0.name }.joined(separator: ", ")
            return await refuse(.notFound, "there is nothing at this path; there are \(names)")
        }
        guard method == "POST" else { return await refuse(.badRequest, "the method is \(method); allowed is POST") }
        await run(type)
    }

    private mutating func run<Request: StoreRequest>(_ type: Request.Type) async {
        let thread = CommandThread()
        let request: Request
        do {
            request = try await decode(type, on: thread)
        } catch {
            return await refuse(.badRequest, "the body is not the JSON of this request: \(Self.reason(error))")
        }
        guard await stream.send(Self.head(.ok)) else { return }
        let (lines, continuation) = AsyncStream.makeStream(of: [UInt8].self, bufferingPolicy: .unbounded)
        let work = Task(executorPreference: thread) { [store = endpoints.store(for: requester), logger, requester] in
            let clock = Mutex(ContinuousClock.now)
            var store = store
            store.progress = { progress in
                let isDue = clock.withLock { last in
                    guard ContinuousClock.now - last >= Self.progressInterval else { return false }
                    last = .now
                    return true
                }
                if isDue { continuation.yield(Self.text(ControlLine<NoReply>(progress: progress))) }
            }
            let line: ControlLine<Request.Reply>
            do throws(StoreError) {
                let reply = try await request.answer(store)
                line = ControlLine(reply: reply)
                if let (command, text) = request.act(reply) {
                    logger.notice("\(command) requested by \(requester): \(text)")
                }
            } catch {
                let command = type.name.replacing("/", with: " ")
                logger.notice("\(command) requested by \(requester) failed: \(error)")
                line = ControlLine(error: "\(error)")
            }
            continuation.yield(Self.text(line))
            continuation.finish()
        }
        let drainWatch = Task(executorPreference: loop) { [loop] in
            // When the server stops, the work is cancelled: every request may end at any point.
            while !loop.isDraining && !Task.isCancelled {
                await loop.sleep(until: loop.now + Nanoseconds(Self.progressInterval))
            }
            work.cancel()
            continuation.finish()
        }
        for await line in lines {
            // If this fails, the command has ended, and nothing waits for the reply.
            guard await stream.send(line) else { break }
        }
        work.cancel()
        drainWatch.cancel()
        // Wait until the work has cleaned up: the server may end as soon as all connections have ended.
        await work.value
    }

    private mutating func noteAPIKeyChange() async {
        guard let change = try? OperationsJSON.decode(APIKeyChange.self, from: Data(stream.takeBody())), change.isValid
        else {
            return await refuse(.badRequest, "the body is not the JSON of this request")
        }
        let reply = await endpoints.note(change, by: requester)
        guard await stream.send(Self.head(.ok)) else { return }
        _ = await stream.send(Self.text(ControlLine(reply: reply)))
    }

    private mutating func decode<Request: StoreRequest>(
        _ type: Request.Type, on thread: CommandThread
    ) async throws -> Request {
        let body = stream.takeBody()
        return try await Task(executorPreference: thread) {
            // An empty body stands for a request without parameters.
            try OperationsJSON.decode(type, from: body.isEmpty ? Data("{}".utf8) : Data(body))
        }.value
    }

    private static func text(_ line: some Encodable) -> [UInt8] {
        guard let text = try? OperationsJSON.encode(line) else { return [] }
        return Array(text) + [UInt8(ascii: "\n")]
    }

    /// What is wrong with the JSON, without any of its values.
    private static func reason(_ error: any Error) -> String {
        switch error as? DecodingError {
        case .keyNotFound(let key, _): "\(key.stringValue) is missing"
        case .typeMismatch(_, let context), .valueNotFound(_, let context):
            "\(context.codingPath.map(\.stringValue).joined(separator: ".")) is of the wrong type"
        default: "it cannot be read"
        }
    }

    private mutating func refuse(_ status: Status, _ message: String) async {
        _ = await stream.send(Self.head(status) + Self.text(ControlLine<NoReply>(error: message)))
    }

    /// The answer ends with the connection (RFC 9112, section 6.3, number 8).
    private static func head(_ status: Status) -> [UInt8] {
        Array(
            """
            HTTP/1.1 \(status.rawValue) \(status.reason)\r
            Content-Type: application/x-ndjson\r
            Cache-Control: no-store\r
            Connection: close\r
            \r\n
            """.utf8
        )
    }
}

extension AdministrationListener {
    /// Opens the control socket: the Unix socket in the data directory on which commands reach a running server over HTTP.
    ///
    /// Only the server's user and root may connect (mode 0600). The answer to `POST /store/NAME` with a request in JSON is lines
    /// of JSON, the last of which is the reply or an error: see `ControlLine`. All paths of `AdministrationEndpoints` work here
    /// as well, and only here those that change something. Examples:
    ///
    ///     curl --unix-socket data/control.sock -d '{"id": "9f8a4c1e7b3d60528cd1e5f27a94b306"}' http://localhost/store/get
    ///     curl --unix-socket data/control.sock http://localhost/readyz
    ///
    /// An error is only logged, as the server can serve its clients without the socket.
    ///
    /// - Returns: Nil if the socket could not be opened.
    static func control(in directory: String, _ logger: Logger) -> AdministrationListener? {
        let path = ControlSocketAddress.path(in: directory)
        do throws(SystemError) {
            // A request that has begun is not interrupted by a new connection. Each may take twice `bodyLimit`.
            return AdministrationListener(
                try Listener(unixPath: path, mode: 0o600), limit: 8, evictingUpTo: .firstByte)
        } catch {
            logger.warning(
                """
                \(path) cannot be opened, so that commands such as token-cache backup work only while the server is stopped: \(error)
                """
            )
            return nil
        }
    }
}

/// Runs the work of one command, including its JSON, on its own thread.
///
/// Swift has as many shared threads as the machine has processors. Two long commands could occupy all of them, and delay
/// everything else that runs there.
final class CommandThread: TaskExecutor {
    /// A serial queue, which has a thread while it has work.
    private let queue = DispatchQueue(label: "command")

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        queue.async { [self] in unsafe job.runSynchronously(on: asUnownedTaskExecutor()) }
    }
}
