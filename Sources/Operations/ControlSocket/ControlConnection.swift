internal import EventLoop
internal import FoundationEssentials
internal import HTTP
internal import Logging
internal import Server
internal import Synchronization
internal import System
internal import TokenStore

/// Serves a connection to the control socket: receives one request, and sends its progress and its reply.
///
/// Belongs to its loop's thread.
struct ControlConnection: ~Copyable {
    private var stream: AdministrationStream
    private let loop: EventLoop
    private let administrator: any StoreAdministrator
    private let endpoints: AdministrationEndpoints
    private let requester: Requester
    private let budget: CommandBudget
    private let acts: ActLog

    private static let limits: RequestLimits = {
        var limits = RequestLimits()
        limits.body = ControlSocketAddress.bodyLimit
        return limits
    }()
    /// The shortest time between two progress lines.
    private static let progressInterval = Duration.milliseconds(100)

    private init(
        _ stream: consuming AdministrationStream, from requester: Requester, on loop: EventLoop,
        _ administrator: any StoreAdministrator, _ endpoints: AdministrationEndpoints, _ budget: CommandBudget,
        _ acts: ActLog
    ) {
        self.requester = requester
        self.budget = budget
        self.stream = stream
        self.loop = loop
        self.administrator = administrator
        self.endpoints = endpoints
        self.acts = acts
    }

    /// Serves a connection from its first byte to its last.
    ///
    /// - Parameters:
    ///   - connection: The connection; this call closes its socket.
    ///   - loop: The calling task's loop.
    ///   - administrators: Answer requests for the store, each those of one requester.
    ///   - endpoints: Answer requests for the server.
    ///   - budget: The memory budget that all commands share.
    ///   - acts: Logs what the requests do.
    static func serve(
        _ connection: AdministrationConnections.Connection, on loop: EventLoop, _ administrators: Administrators,
        _ endpoints: AdministrationEndpoints, _ budget: CommandBudget, _ acts: ActLog
    ) async {
        let requester = Requester(connectedTo: connection.descriptor)
        guard let stream = AdministrationStream(connection, on: loop, limits: limits, budget: budget) else { return }
        var connection = ControlConnection(
            stream, from: requester, on: loop, administrators.administrator(for: requester), endpoints, budget, acts)
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

    private mutating func answer(_ method: String, _ path: String) async {
        if path == ServerFacts.path && method == "GET" {
            let facts = AdministrationAnswer(json: endpoints.facts())
            _ = await stream.send(facts.encoded(closes: true))
            return
        }
        if path == APIKeyChange.path && method == "POST" { return await noteAPIKeyChange() }
        guard path.hasPrefix(Self.prefix),
            let name = StoreRequestName(rawValue: String(path.dropFirst(Self.prefix.count)))
        else {
            let names = StoreRequestName.allCases.map { Self.prefix + $0.rawValue }.joined(separator: ", ")
            return await refuse(.notFound, "there is nothing at this path; there are \(names)")
        }
        guard method == "POST" else { return await refuse(.badRequest, "the method is \(method); allowed is POST") }
        await run(name.type)
    }

    private mutating func run<Request: StoreRequest>(_ type: Request.Type) async {
        let thread = CommandThread()
        let request: Request
        do {
            request = try await decode(type, on: thread)
        } catch {
            return await refuse(.badRequest, "the body is not the JSON of this request: \(Self.reason(error))")
        }
        var share: CommandBudget.Share?
        if type.replySize > 0 {
            // Released first: commands that wait for memory while holding some could wait for each other for ever.
            stream.releaseShare()
            share = await budget.share(type.replySize, on: loop)
            if share == nil { return await refuse(.unavailable, "the server is stopping") }
        }
        // The reply occupies this memory until it has been sent.
        defer { _ = share.take() }
        guard await send(Self.head(.ok)) else { return }
        let (lines, continuation) = AsyncStream.makeStream(of: [UInt8].self, bufferingPolicy: .unbounded)
        let work = Task(executorPreference: thread) { [administrator, acts, requester] in
            let clock = Mutex(ContinuousClock.now)
            let line: ControlLine<Request.Reply>
            do throws(StoreError) {
                let reply = try await request.answer(administrator) { progress in
                    let isDue = clock.withLock { last in
                        guard ContinuousClock.now - last >= Self.progressInterval else { return false }
                        last = .now
                        return true
                    }
                    if isDue { continuation.yield(Self.text(ControlLine<NoReply>(progress: progress))) }
                }
                line = ControlLine(reply: reply)
                if let act = request.act(reply) { acts.note(act, by: requester) }
            } catch {
                acts.note(failure: error, of: type.name.rawValue, by: requester)
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
            // On failure the command has ended, and nothing waits for the reply.
            guard await send(line) else { break }
        }
        work.cancel()
        drainWatch.cancel()
        // Wait for the work to clean up, as the server ends when all connections have ended.
        await work.value
    }

    /// Logs that a command has changed the API keys, and takes it over.
    private mutating func noteAPIKeyChange() async {
        guard let change = try? OperationsJSON.decode(APIKeyChange.self, from: Data(stream.takeBody())), change.isValid
        else {
            return await refuse(.badRequest, "the body is not the JSON of this request")
        }
        let reply = await endpoints.note(change, by: requester)
        guard await send(Self.head(.ok)) else { return }
        _ = await send(Self.text(ControlLine(reply: reply)))
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
        _ = await send(Self.head(status) + Self.text(ControlLine<NoReply>(error: message)))
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

    private mutating func send(_ bytes: [UInt8]) async -> Bool {
        await stream.send(bytes)
    }
}

/// The Unix socket in the data directory on which commands reach a running server over HTTP.
///
/// Only the server's user and root may connect (mode 0600). The answer to `POST /store/NAME` with a request in JSON is lines
/// of JSON, the last of which is the reply or an error: see `ControlLine`. `GET /server` returns `ServerFacts`. All paths of
/// `AdministrationEndpoints` work here as well, and only here those that change something. Examples:
///
///     curl --unix-socket data/control.sock -d '{"id": "9f8a4c1e7b3d60528cd1e5f27a94b306"}' http://localhost/store/get
///     curl --unix-socket data/control.sock http://localhost/readyz
final class ControlSocket: Sendable {
    private let listener: AdministrationListener
    private let budget = CommandBudget(limit: ControlSocketAddress.bodyLimit)

    init(directory: String) throws(SystemError) {
        listener = AdministrationListener(
            try Listener(unixPath: ControlSocketAddress.path(in: directory), mode: 0o600),
            // A request that has begun is not interrupted by a new connection.
            evictingUpTo: .firstByte
        )
    }

    /// Opens the socket, and only logs an error, as the server can serve its clients without the socket.
    ///
    /// - Returns: Nil if the socket could not be opened.
    static func open(directory: String, _ logger: Logger) -> ControlSocket? {
        do throws(SystemError) {
            return try ControlSocket(directory: directory)
        } catch {
            logger.warning(
                """
                \(ControlSocketAddress.path(in: directory)) cannot be opened, so that commands such as token-cache backup \
                work only while the server is stopped: \(error)
                """
            )
            return nil
        }
    }

    /// Accepts connections until the loop is abandoned, and returns when all connections have ended.
    ///
    /// - Parameter administrators: Carry out the requests for the store.
    func accept(
        on loop: EventLoop, _ administrators: Administrators, _ endpoints: AdministrationEndpoints, _ acts: ActLog,
        _ logger: Logger
    ) async {
        await listener.accept(on: loop, logger) { [budget] in
            await ControlConnection.serve($0, on: loop, administrators, endpoints, budget, acts)
        }
    }
}
