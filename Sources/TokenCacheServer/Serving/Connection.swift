internal import EventLoop
internal import HTTP
internal import TokenService

/// One client's connection: reads requests, has them answered, writes the answers in their order.
///
/// Belongs to its loop's thread.
struct Connection: ~Copyable {
    private var stream: TCPStream
    private let peer: SocketAddress
    private let worker: Worker
    private var reader: RequestReader
    private var output: [UInt8] = []
    /// What the deadline is for; nil before a request's first byte.
    private var awaited: RequestReader.Part?
    private var deadline = MonotonicTime.never
    /// Requests answered since this task last let others run.
    private var streak = 0

    /// Answers are gathered while further requests are at hand, up to this many bytes.
    private static let outputLimit = 64 << 10
    /// Requests of one connection that are answered in a row before other connections get their turn.
    private static let streakLimit = 32

    init(_ stream: consuming TCPStream, from peer: SocketAddress, on worker: Worker) {
        self.stream = stream
        self.peer = peer
        self.worker = worker
        reader = RequestReader(limits: worker.limits)
    }

    /// Answers requests until the client or the server has had enough.
    mutating func serve() async {
        while let request = await nextRequest() {
            let start = worker.accessLog.map { _ in MonotonicTime.now }
            let response = await worker.service.answer(request, in: reader.requestBytes)
            let closes = !request.head.keepsAlive || worker.loop.isDraining
            write(response, to: request.head, closes: closes)
            if let start { log(response, to: request.head, since: start) }
            worker.service.recycle(response.body)
            reader.finishRequest()
            awaited = nil
            if closes { return await finish(lingers: !reader.isEmpty) }
            if output.count >= Self.outputLimit { guard await flush() else { return releaseBuffers() } }
            await letOthersRun()
        }
        releaseBuffers()
    }

    /// Answers a request that cannot be read on, and closes.
    mutating func refuse(_ refusal: Refusal) async {
        let start = worker.accessLog.map { _ in MonotonicTime.now }
        let response = worker.service.answer(refusal)
        write(response, to: reader.partialHead, closes: true)
        if let start { log(response, to: reader.partialHead, since: start) }
        await finish(lingers: true)
    }

    // MARK: - Reading

    /// The next whole request; nil when the connection is over, whatever there was to say having been said.
    private mutating func nextRequest() async -> Request? {
        while true {
            switch reader.next() {
            case .request(let request): return request
            case .sendContinue: output.append(contentsOf: ResponseEncoder.continueResponse)
            case .needsMore(let part):
                guard await flush() else { return nil }
                switch await receive(part) {
                case .more: break
                case .refused(let refusal):
                    await refuse(refusal)
                    return nil
                case .over: return nil
                }
            case .refused(let refusal):
                await refuse(refusal)
                return nil
            }
        }
    }

    private enum Received {
        case more
        case refused(Refusal)
        case over
    }

    /// Receives something, waiting for it until the deadline of what is awaited.
    private mutating func receive(_ part: RequestReader.Part) async -> Received {
        startDeadline(of: part)
        while true {
            if stream.mayBeReadable {
                switch receiveNow() {
                case .received: return .more
                case .wouldBlock: break
                // Closed in the middle of a request, or cut off: nobody is left to be told.
                case .endOfInput, nil: return .over
                }
            }
            if part == .start { releaseBuffers() }
            switch await stream.waitUntilReadable(until: deadline, isIdle: part == .start) {
            case .ready: streak = 0
            case .timedOut:
                switch part {
                case .start: return .over
                case .head: return .refused(.headTimeout)
                case .body: return .refused(.bodyTimeout)
                }
            case .draining:
                // A request that the kernel already has counts as received, and is answered.
                if case .received = receiveNow() { return .more }
                return .over
            case .abandoned: return .over
            }
        }
    }

    private mutating func startDeadline(of part: RequestReader.Part) {
        guard part != awaited else { return }
        awaited = part
        switch part {
        case .start: deadline = worker.loop.now + worker.deadlines.idle
        case .head: deadline = worker.loop.now + worker.deadlines.head
        case .body: deadline = worker.loop.now + worker.deadlines.body
        }
    }

    /// One read into the room at the buffer's end; nil when the connection is broken.
    private mutating func receiveNow() -> TCPStream.ReceiveResult? {
        if reader.bytes.capacity == 0 { reader.bytes = worker.buffers.take() }
        let room = reader.makeRoom()
        return try? stream.receive(into: &reader.bytes, room: room)
    }

    /// Goes to the back of the loop's queue after a run of requests, so that one busy client does not starve the others.
    private mutating func letOthersRun() async {
        streak += 1
        if streak >= Self.streakLimit {
            streak = 0
            await Task.yield()
        }
    }

    // MARK: - Writing

    private mutating func write(_ response: borrowing Response, to head: RequestHead, closes: Bool) {
        if output.capacity == 0 { output = worker.buffers.take() }
        let traits = ResponseEncoder.Traits(
            omitsBody: head.method == .head, closes: closes, isOldVersion: head.minorVersion == 0
        )
        worker.encoder.encode(response, traits, into: &output, unixTime: worker.unixTime)
    }

    /// Sends what was written; false when the client does not take it.
    private mutating func flush() async -> Bool {
        guard !output.isEmpty else { return true }
        var sent = 0
        let deadline = worker.loop.now + worker.deadlines.send
        while true {
            let remaining = output.span.extracting(sent..<output.count)
            guard let count = try? stream.send(remaining) else { return false }
            sent += count
            if sent == output.count { break }
            if count == 0, await stream.waitUntilWritable(until: deadline) != .ready { return false }
        }
        output.removeAll(keepingCapacity: true)
        return true
    }

    private mutating func releaseBuffers() {
        if reader.isEmpty { worker.buffers.give(&reader.bytes) }
        if output.isEmpty { worker.buffers.give(&output) }
    }

    // MARK: - Closing

    /// Sends the last answer and ends the connection.
    ///
    /// - Parameter lingers: Whether the client may still be sending. Closing with unread input makes the kernel send a
    ///   reset, which can overtake the answer (RFC 9112, section 9.6); so the rest is read and dropped for a moment.
    private mutating func finish(lingers: Bool) async {
        let isSent = await flush()
        if isSent && lingers {
            stream.finishSending()
            await linger()
        }
        reader.bytes.removeAll(keepingCapacity: true)
        output.removeAll(keepingCapacity: true)
        worker.buffers.give(&reader.bytes)
        worker.buffers.give(&output)
    }

    private mutating func linger() async {
        let deadline = worker.loop.now + worker.deadlines.linger
        while worker.loop.now < deadline {
            reader.bytes.removeAll(keepingCapacity: true)
            switch try? stream.receive(into: &reader.bytes, room: BufferPool.bufferSize) {
            case .received: await letOthersRun()
            case .wouldBlock:
                guard await stream.waitUntilReadable(until: deadline, isIdle: false) == .ready else { return }
            case .endOfInput, nil: return
            }
        }
    }

    // MARK: - Logging

    private func log(_ response: borrowing Response, to head: RequestHead, since start: MonotonicTime) {
        let bytes = reader.requestBytes
        let isKnown = worker.service.isKnown(head.path, of: head.method, in: bytes)
        worker.accessLog?.write(
            AccessLog.Entry(
                client: peer.host,
                method: bytes.text(head.methodName),
                path: isKnown ? bytes.text(head.path) : nil,
                minorVersion: head.minorVersion,
                status: response.status.rawValue,
                bytes: head.method == .head ? 0 : response.body.count,
                microseconds: (MonotonicTime.now - start).count / 1_000,
                unixTime: worker.unixTime
            )
        )
    }
}
