internal import EventLoop
internal import HTTP
internal import TokenService

/// One client's connection: reads requests, has them answered, writes the answers in their order.
///
/// Belongs to its loop's thread. The steps between two waits are never inlined: what they need for a moment would otherwise
/// be part of the waiting task's memory for as long as the connection lives, 4.5 KiB instead of 2.5. For the same reason they
/// are mutating even where they change nothing: otherwise all fields are loaded, and kept, to be passed on.
struct Connection: ~Copyable {
    private var stream: TCPStream
    private var origin: HTTPSPolicy.Origin
    private let worker: Worker
    private var reader: RequestReader
    private var output: [UInt8] = []
    /// What the deadline is for; nil before a request's first byte.
    private var awaited: RequestReader.Part?
    private var deadline = MonotonicTime.never
    /// When the current request's answering began; only kept for the access log.
    private var started = MonotonicTime.never
    /// Requests answered since this task last let others run.
    private var streak = 0
    /// The current request came by https.
    private var isSecure = false
    /// The last answer has been written.
    private var isOver = false
    /// The client may be sending still.
    private var lingers = false

    /// Answers are gathered while further requests are at hand, until there are this many bytes.
    private static let outputLimit = 64 << 10
    /// Requests of one connection that are answered in a row before other connections get their turn.
    private static let streakLimit = 32
    /// Bytes that a client has to take of an answer to have its time for the rest begin anew: one that takes a byte now and
    /// then does not hold the answer for hours.
    private static let renewal = 256 << 10

    @inline(never)
    init(_ stream: consuming TCPStream, from origin: HTTPSPolicy.Origin, on worker: Worker) {
        self.stream = stream
        self.origin = origin
        self.worker = worker
        reader = RequestReader(limits: worker.limits)
    }

    /// Answers requests until the client or the server has had enough.
    @inline(never)
    mutating func serve() async {
        while await receiveRequest() {
            write(await worker.service.answer(readRequest()))
            guard !isOver, await makeWay() else { return await finish() }
        }
        releaseBuffers()
    }

    /// Answers a request that cannot be read on, and closes.
    @inline(never)
    mutating func refuse(_ refusal: Refusal) async {
        if worker.accessLog != nil { started = .now }
        encode(worker.service.answer(refusal), to: reader.partialHead, closes: true)
        lingers = true
        await finish()
    }

    // MARK: - Reading

    /// Receives until a whole request is at hand.
    ///
    /// False when the connection is over, whatever there was to say having been said.
    @inline(never)
    private mutating func receiveRequest() async -> Bool {
        while true {
            switch reader.next() {
            case .request: return true
            case .sendContinue: writeContinue()
            case .needsMore(let part):
                if part == .head && isTLSHello() { return false }
                guard await flush() else { return false }
                switch await receive(part) {
                case .more: break
                case .refused(let refusal):
                    await refuse(refusal)
                    return false
                case .over: return false
                }
            case .refused(let refusal):
                if !isTLSHello() { await refuse(refusal) }
                return false
            }
        }
    }

    @inline(never)
    private mutating func readRequest() -> TokenService.Operation {
        if worker.accessLog != nil { started = .now }
        let request = reader.request
        switch worker.https.decision(on: request.head, in: reader.requestBytes, from: origin) {
        case .served(let isSecure):
            self.isSecure = isSecure
            return worker.service.operation(for: request, in: reader.requestBytes)
        case .redirected:
            isSecure = false
            guard let redirect = worker.https.redirect(request.head, in: reader.requestBytes) else {
                return .answer(worker.service.answer(.missingHost))
            }
            return .answer(redirect)
        }
    }

    /// Whether the client speaks TLS where plain HTTP is expected: no answer of ours would mean anything to it.
    @inline(never)
    private mutating func isTLSHello() -> Bool {
        guard reader.beginsLikeTLS else { return false }
        worker.noteClosed("TLS on a plain HTTP port")
        return true
    }

    // MARK: - Before the first request

    /// Reads the PROXY protocol header that the connection has to begin with, and takes its client for our own.
    ///
    /// Not a byte more: what follows may be TLS. False when there is none, or it comes from somebody who is not trusted to
    /// say who the client is.
    @inline(never)
    mutating func readProxyHeader() async -> Bool {
        let deadline = worker.loop.now + worker.deadlines.head
        while origin.isTrusted {
            var seen: [UInt8] = []
            switch try? stream.peek(into: &seen, room: ProxyProtocol.longest) {
            case .received, .wouldBlock: break
            case .endOfInput, nil: return false
            }
            switch ProxyProtocol.read(seen) {
            case .header(let length, let client):
                seen.removeAll()
                guard case .received(length) = try? stream.receive(into: &seen, room: length) else { return false }
                if let client { origin = worker.https.origin(address: client, isTLS: false) }
                return true
            case .needsMore:
                guard await stream.waitForMore(until: deadline) == .ready else { return false }
            case .malformed:
                worker.noteClosed("it did not begin with a PROXY protocol header")
                return false
            }
        }
        worker.noteClosed("its PROXY protocol header is not of a trusted proxy")
        return false
    }

    /// Shakes hands; false when that fails, whatever there was to say having been said.
    @inline(never)
    mutating func startTLS(_ context: TLSContext) async -> Bool {
        do throws(TLSError) {
            try await stream.startTLS(context, until: worker.loop.now + worker.deadlines.handshake)
            origin = worker.https.origin(address: origin.address, isTLS: true)
            return true
        } catch {
            worker.noteClosed("\(error)")
            switch error {
            case .plainRequest: await refuse(.plainRequest)
            case .refused:
                // The alert that tells the client why.
                lingers = true
                await finish()
            case .closed, .timedOut, .stopped, .system: break
            }
            return false
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
        while !worker.loop.isAbandoned {
            if stream.mayBeReadable {
                switch receiveNow() {
                case .received:
                    // A client that always has more to send neither keeps others waiting nor outruns its deadline.
                    await letOthersRun()
                    return worker.loop.now < deadline ? .more : timedOut(part)
                case .wouldBlock: break
                // Closed in the middle of a request, or cut off: nobody is left to be told.
                case .endOfInput, nil: return .over
                }
            }
            if part == .start { releaseBuffers() }
            guard let held = hold(reader.bytes.capacity) else { return .refused(.outOfBuffers) }
            let reason = await stream.waitUntilReadable(until: deadline, isIdle: part == .start)
            worker.heldMemory.release(held)
            switch reason {
            case .ready: streak = 0
            case .timedOut: return timedOut(part)
            case .draining:
                // A request that the kernel already has counts as received, and is answered.
                if case .received = receiveNow() { return .more }
                return .over
            case .abandoned: return .over
            }
        }
        return .over
    }

    private func timedOut(_ part: RequestReader.Part) -> Received {
        switch part {
        case .start: .over
        case .head: .refused(.headTimeout)
        case .body: .refused(.bodyTimeout)
        }
    }

    /// Counts a large buffer that is about to wait for its client.
    ///
    /// Returns the bytes to give back afterwards; nil when clients hold too many already.
    private mutating func hold(_ capacity: Int) -> Int? {
        guard capacity > 2 * BufferPool.bufferSize else { return 0 }
        return worker.heldMemory.hold(capacity) ? capacity : nil
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
    @inline(never)
    private mutating func receiveNow() -> TCPStream.ReceiveResult? {
        if reader.bytes.capacity == 0 { reader.bytes = worker.takeBuffer() }
        let room = reader.makeRoom()
        return try? stream.receive(into: &reader.bytes, room: room)
    }

    /// Goes to the back of the loop's queue after a run of requests, so that one busy client does not starve the others.
    @inline(never)
    private mutating func letOthersRun() async {
        streak += 1
        if streak >= Self.streakLimit {
            streak = 0
            await Task.yield()
        }
    }

    /// Between two requests: gives others their turn, and sends when much is gathered; false when that fails.
    @inline(never)
    private mutating func makeWay() async -> Bool {
        await letOthersRun()
        if worker.loop.isAbandoned { return false }
        return output.count < Self.outputLimit ? true : await flush()
    }

    // MARK: - Writing

    /// Writes the answer to the request at hand and leaves that behind.
    @inline(never)
    private mutating func write(_ response: consuming Response) {
        let head = reader.request.head
        isOver = !head.keepsAlive || worker.loop.isDraining && !hasFurtherInput()
        encode(response, to: head, closes: isOver)
        reader.finishRequest()
        awaited = nil
        // Where the client did not ask for the end it may be sending its next request already.
        lingers = head.keepsAlive || !reader.isEmpty
    }

    /// Whether more than the request at hand has been received, be it by the kernel: while draining that is answered.
    private mutating func hasFurtherInput() -> Bool {
        if reader.hasFurtherBytes { return true }
        if case .received = receiveNow() { return true }
        return false
    }

    @inline(never)
    private mutating func writeContinue() {
        if output.capacity == 0 { output = worker.takeBuffer() }
        output.append(contentsOf: ResponseEncoder.continueResponse)
    }

    @inline(never)
    private mutating func encode(_ response: consuming Response, to head: RequestHead, closes: Bool) {
        if output.capacity == 0 { output = worker.takeBuffer() }
        let traits = ResponseEncoder.Traits(
            omitsBody: head.method == .head, closes: closes, isOldVersion: head.minorVersion == 0, isSecure: isSecure
        )
        worker.encode(response, traits, into: &output)
        if worker.accessLog != nil { log(response, to: head) }
        worker.service.recycle(response.body)
    }

    /// Sends what was written; false when the client does not take it, and then nothing more is sent.
    private mutating func flush() async -> Bool {
        let isTaken = await sendOutput()
        output.removeAll(keepingCapacity: true)
        // Who has not taken this will take nothing else.
        if !isTaken { lingers = false }
        return isTaken
    }

    private mutating func sendOutput() async -> Bool {
        var (sent, sentAtRenewal) = (0, 0)
        var deadline = worker.loop.now + worker.deadlines.send
        while sent < output.count {
            guard let count = try? stream.send(output.span.extracting(sent..<output.count)) else { return false }
            sent += count
            if sent - sentAtRenewal >= Self.renewal {
                sentAtRenewal = sent
                deadline = worker.loop.now + worker.deadlines.send
            }
            if count > 0 { continue }
            guard let held = hold(output.capacity) else { return false }
            let reason = await stream.waitUntilWritable(until: deadline)
            worker.heldMemory.release(held)
            guard reason == .ready else { return false }
        }
        return true
    }

    @inline(never)
    private mutating func releaseBuffers() {
        if reader.isEmpty { worker.giveBuffer(&reader.bytes) }
        if output.isEmpty { worker.giveBuffer(&output) }
    }

    // MARK: - Closing

    /// Sends the last answer and ends the connection.
    ///
    /// Closing with unread input makes the kernel send a reset, which can overtake the answer (RFC 9112, section 9.6);
    /// where the client may still be sending the rest is read and dropped for a moment.
    @inline(never)
    private mutating func finish() async {
        let isTaken = await flush()
        // Before the wait: large ones would be held by nobody's count.
        reader.bytes.removeAll(keepingCapacity: true)
        worker.giveBuffer(&reader.bytes)
        worker.giveBuffer(&output)
        if isTaken && lingers {
            stream.finishSending()
            await linger()
        }
    }

    private mutating func linger() async {
        let deadline = worker.loop.now + worker.deadlines.linger
        reader.bytes = worker.takeBuffer()
        defer { worker.giveBuffer(&reader.bytes) }
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

    private func log(_ response: borrowing Response, to head: RequestHead) {
        let bytes = reader.requestBytes
        let isKnown = worker.service.isKnown(head.path, of: head.method, in: bytes)
        worker.accessLog?.write(
            AccessLog.Entry(
                client: worker.https.client(of: head, in: bytes, from: origin)?.description ?? "unix",
                method: bytes.text(head.methodName),
                path: isKnown ? bytes.text(head.path) : nil,
                minorVersion: head.minorVersion,
                status: response.status.rawValue,
                bytes: head.method == .head ? 0 : response.body.count,
                microseconds: (MonotonicTime.now - started).count / 1_000,
                unixTime: worker.unixTime
            )
        )
    }
}
