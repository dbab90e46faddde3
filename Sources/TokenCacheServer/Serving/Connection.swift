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
    /// How much of `output` the socket has taken.
    private var sent = 0
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
    /// Buffers up to this many bytes wait for their clients uncounted.
    private static let uncounted = 2 * BufferPool.bufferSize
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

    /// What has to be waited for before the connection can go on.
    private enum Pause {
        /// Further bytes of the client.
        case input
        /// The client's taking what was written.
        case output
        /// The store.
        case operation(TokenService.Operation)
        /// Other connections' having had their turn.
        case turn
        /// Nothing: this is to be answered as the last.
        case refusal(Refusal)
        /// Nothing: the last answer has been written.
        case finish
        /// Nothing: there is nothing to say.
        case end
    }

    /// Answers requests until the client or the server has had enough.
    ///
    /// All that can be done without waiting happens in `proceed`, in plain calls: a call that may wait costs a frame on the
    /// task's own stack.
    @inline(never)
    mutating func serve() async {
        while true {
            switch proceed() {
            case .input:
                guard prepareToWait() else { return await refuse(.outOfBuffers) }
                let reason = await stream.waitUntilReadable(until: deadline, isIdle: awaited == .start)
                switch wake(reason) {
                case nil: break
                case .refusal(let refusal): return await refuse(refusal)
                default: return releaseBuffers()
                }
            case .output: guard await flush() else { return releaseBuffers() }
            case .operation(let operation): await answer(operation)
            case .turn: await Task.yield()
            case .refusal(let refusal): return await refuse(refusal)
            case .finish: return await finish()
            case .end: return releaseBuffers()
            }
        }
    }

    /// Goes on for as long as nothing has to be waited for.
    @inline(never)
    private mutating func proceed() -> Pause {
        while true {
            if isOver { return .finish }
            if worker.loop.isAbandoned { return output.isEmpty ? .end : .finish }
            if streak >= Self.streakLimit {
                streak = 0
                return .turn
            }
            if output.count >= Self.outputLimit, let pause = send() { return pause }
            switch reader.next() {
            case .request:
                let operation = readRequest()
                guard case .answer(let response) = operation else { return .operation(operation) }
                write(response)
            case .sendContinue: writeContinue()
            case .needsMore(let part): if let pause = receive(part) { return pause }
            case .refused(let refusal): return isTLSHello() ? .end : .refusal(refusal)
            }
        }
    }

    @inline(never)
    private mutating func answer(_ operation: TokenService.Operation) async {
        write(await worker.service.answer(operation))
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

    /// Sends what was gathered and receives what is there; nil when something is.
    @inline(never)
    private mutating func receive(_ part: RequestReader.Part) -> Pause? {
        if part == .head && isTLSHello() { return .end }
        if let pause = send() { return pause }
        startDeadline(of: part)
        guard stream.mayBeReadable else { return .input }
        switch receiveNow() {
        case .received:
            // A client that always has more to send neither keeps others waiting nor outruns its deadline.
            streak += 1
            return worker.loop.now < deadline ? nil : timedOut()
        case .wouldBlock: return .input
        // Closed in the middle of a request, or cut off: nobody is left to be told.
        case .endOfInput, nil: return .end
        }
    }

    /// False when clients hold too much memory already for another large buffer to wait.
    @inline(never)
    private mutating func prepareToWait() -> Bool {
        if awaited == .start { releaseBuffers() }
        return hold(reader.bytes.capacity)
    }

    /// Goes on after the wait for input; nil to do so as ever.
    @inline(never)
    private mutating func wake(_ reason: WakeReason) -> Pause? {
        release(reader.bytes.capacity)
        switch reason {
        case .ready:
            streak = 0
            return nil
        case .timedOut: return timedOut()
        case .draining:
            // A request that the kernel already has counts as received, and is answered.
            if case .received = receiveNow() { return nil }
            return .end
        case .abandoned: return .end
        }
    }

    private func timedOut() -> Pause {
        switch awaited {
        case .start, nil: .end
        case .head: .refusal(.headTimeout)
        case .body: .refusal(.bodyTimeout)
        }
    }

    /// Counts a large buffer that is about to wait for its client; false when clients hold too many already.
    private func hold(_ capacity: Int) -> Bool {
        capacity <= Self.uncounted || worker.heldMemory.hold(capacity)
    }

    private func release(_ capacity: Int) {
        if capacity > Self.uncounted { worker.heldMemory.release(capacity) }
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

    // MARK: - Writing

    /// Writes the answer to the request at hand and leaves that behind.
    @inline(never)
    private mutating func write(_ response: consuming Response) {
        let head = reader.request.head
        isOver = !head.keepsAlive || worker.loop.isDraining && !hasFurtherInput()
        encode(response, to: head, closes: isOver)
        reader.finishRequest()
        awaited = nil
        streak += 1
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
    }

    /// Sends as much of what was written as the socket takes now; nil when that is all of it.
    @inline(never)
    private mutating func send() -> Pause? {
        while sent < output.count {
            guard let count = try? stream.send(output.span.extracting(sent..<output.count)) else {
                dropOutput()
                return .end
            }
            if count == 0 { return .output }
            sent += count
        }
        output.removeAll(keepingCapacity: true)
        sent = 0
        return nil
    }

    /// Who has not taken this will take nothing else.
    private mutating func dropOutput() {
        output.removeAll(keepingCapacity: true)
        sent = 0
        lingers = false
    }

    /// Sends what was written; false when the client does not take it, and then nothing more is sent.
    @inline(never)
    private mutating func flush() async -> Bool {
        var deadline = worker.loop.now + worker.deadlines.send
        var sentAtRenewal = sent
        while true {
            switch send() {
            case nil: return true
            case .output: break
            default: return false
            }
            if sent - sentAtRenewal >= Self.renewal {
                sentAtRenewal = sent
                deadline = worker.loop.now + worker.deadlines.send
            }
            let capacity = output.capacity
            var reason: WakeReason?
            if hold(capacity) {
                reason = await stream.waitUntilWritable(until: deadline)
                release(capacity)
            }
            guard reason == .ready else {
                dropOutput()
                return false
            }
        }
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
            case .received:
                streak += 1
                if streak.isMultiple(of: Self.streakLimit) { await Task.yield() }
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
