internal import EventLoop
internal import HTTP
internal import Metrics
internal import TokenService

/// One client's connection: reads requests, has them answered, writes the answers in their order.
///
/// Belongs to its loop's thread. What comes with nearly every request is plain calls from one wait to the next; what is rare
/// and waits in the middle, such as a handshake or an answer that the client is slow to take, is async.
struct Connection: ~Copyable {
    private var stream: TCPStream
    private var origin: HTTPSPolicy.Origin
    /// For the current request.
    private(set) var rules: ServingRules
    private var reader: RequestReader
    private var output: [UInt8] = []
    /// How much of `output` the socket has taken.
    private var sent = 0
    /// What the deadline is for; nil before a request's first byte.
    private var awaited: RequestReader.Part?
    private var deadline = MonotonicTime.never
    /// When the current request's answering began; only kept for the access log.
    private var started = MonotonicTime.never
    /// What the current request asks of its answer.
    private var asked = RequestTraits(RequestHead())
    /// The current request's.
    private(set) var requestID = RequestID.none
    /// Requests received or answered since others last had their turn.
    private var streak = 0
    /// The current request came by https.
    private var isSecure = false
    private var hasAnswered = false
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

    init(_ stream: consuming TCPStream, from origin: HTTPSPolicy.Origin, on worker: Worker) {
        self.stream = stream
        self.origin = origin
        rules = worker.rules
        reader = RequestReader(limits: rules.limits)
    }

    /// Why a connection does not go on by itself.
    enum Pause {
        /// It waits for further bytes of the client, and the handler will be called.
        case input
        /// It waits for the client to take what was written, which is counted: `flush`.
        case output
        /// It waits for the store, and then for `write`.
        case store(tokenInfo: [UInt8], id: [UInt8])
        /// Others are to have their turn.
        case turn
        /// This is to be answered as the last: `refuse`.
        case refusal(Refusal)
        /// The last answer has been written: `finish`.
        case finish
        /// There is nothing left to say.
        case end
    }

    /// Goes on until something has to be waited for.
    ///
    /// - Parameters:
    ///   - reason: What ended the wait for input; nil where there was none.
    ///   - worker: Its loop's, here and in all that follows: handed down, for a reference of its own would be counted up and
    ///     down with each use.
    ///   - handler: Is called with such a reason after a pause for input.
    mutating func proceed(
        after reason: WakeReason?, on worker: Worker, calling handler: any ReadinessHandler
    ) -> Pause {
        // Rarely: after a reload, and then before the next request.
        if rules !== worker.rules, reader.isBetweenRequests { takeRules(of: worker) }
        if let reason {
            // Others have had their turn.
            streak = 0
            release(reader.bytes.capacity, on: worker)
            if let pause = receive(after: reason, on: worker, calling: handler) { return pause }
        }
        while true {
            if isOver || output.count >= Self.outputLimit, let pause = send(on: worker) { return pause }
            if isOver { return lingers ? .finish : .end }
            if worker.loop.isAbandoned { return output.isEmpty ? .end : .finish }
            if streak >= Self.streakLimit {
                streak = 0
                return .turn
            }
            switch reader.next() {
            case .request:
                switch readRequest(on: worker) {
                case .answer(let response): write(response, on: worker)
                case .store(let tokenInfo, let id): return .store(tokenInfo: tokenInfo, id: id)
                }
            case .sendContinue: writeContinue(on: worker)
            case .needsMore(let part): if let pause = receive(part, on: worker, calling: handler) { return pause }
            case .refused(let refusal): return isTLSHello(on: worker) ? .end : .refusal(refusal)
            }
        }
    }

    private var isBetweenRequests: Bool {
        if case .start = awaited { true } else { false }
    }

    private mutating func takeRules(of worker: Worker) {
        rules = worker.rules
        reader.limits = rules.limits
        origin = rules.https.origin(address: origin.address, isTLS: origin.isTLS)
    }

    /// Answers a request that cannot be read on, and closes.
    mutating func refuse(_ refusal: Refusal, on worker: Worker) async {
        if rules.accessLog != nil { started = .now }
        let head = reader.partialHead
        asked = RequestTraits(head)
        requestID = Self.requestID(head, in: reader.requestBytes, from: origin, by: rules, on: worker)
        switch rules.https.decision(on: head.forwarding, in: reader.requestBytes, from: origin) {
        case .served(let isSecure): self.isSecure = isSecure
        case .redirected: isSecure = false
        }
        encode(rules.service.answer(refusal), closes: true, on: worker)
        lingers = true
        await finish(on: worker)
    }

    // MARK: - Reading

    private mutating func readRequest(on worker: Worker) -> TokenService.Operation {
        if rules.accessLog != nil { started = .now }
        let operation: TokenService.Operation
        (operation, asked, requestID, isSecure) = Self.operation(for: reader, from: origin, by: rules, on: worker)
        return operation
    }

    private static func operation(
        for reader: borrowing RequestReader, from origin: HTTPSPolicy.Origin, by rules: ServingRules, on worker: Worker
    ) -> (TokenService.Operation, RequestTraits, RequestID, isSecure: Bool) {
        let (request, bytes) = (reader.request, reader.requestBytes)
        let asked = RequestTraits(request.head)
        let requestID = requestID(request.head, in: bytes, from: origin, by: rules, on: worker)
        switch rules.https.decision(on: request.head.forwarding, in: bytes, from: origin) {
        case .served(let isSecure):
            return (rules.service.operation(for: request, in: bytes, requestID: requestID), asked, requestID, isSecure)
        case .redirected:
            let redirect = rules.https.redirect(request.head, in: bytes) ?? rules.service.answer(.missingHost)
            return (.answer(redirect), asked, requestID, false)
        }
    }

    private static func requestID(
        _ head: RequestHead, in bytes: Span<UInt8>, from origin: HTTPSPolicy.Origin, by rules: ServingRules,
        on worker: Worker
    ) -> RequestID {
        rules.hasRequestIDs ? worker.requestID(head.forwarding.requestID, in: bytes, from: origin) : .none
    }

    /// Whether the client speaks TLS where plain HTTP is expected: no answer of ours would mean anything to it.
    private func isTLSHello(on worker: Worker) -> Bool {
        guard !hasAnswered, reader.beginsLikeTLS else { return false }
        worker.noteClosed("TLS on a plain HTTP port")
        return true
    }

    // MARK: - Before the first request

    /// Reads the PROXY protocol header that the connection has to begin with, and takes its client for our own.
    ///
    /// Not a byte more: what follows may be TLS. False when there is none, or it comes from somebody who is not trusted to
    /// say who the client is.
    mutating func readProxyHeader(on worker: Worker) async -> Bool {
        let deadline = worker.loop.now + rules.deadlines.head
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
                if let client { origin = rules.https.origin(address: client, isTLS: false) }
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
    mutating func startTLS(_ context: TLSContext, on worker: Worker) async -> Bool {
        do throws(TLSError) {
            try await stream.startTLS(context, until: worker.loop.now + rules.deadlines.handshake)
            worker.metrics.handshakes.add()
            origin = rules.https.origin(address: origin.address, isTLS: true)
            return true
        } catch {
            worker.noteClosed("\(error)")
            worker.metrics.handshakeFailures.add(error.cause)
            switch error {
            case .plainRequest: await refuse(.plainRequest, on: worker)
            case .refused:
                // The alert that tells the client why.
                lingers = true
                await finish(on: worker)
            case .closed, .timedOut, .stopped, .system: break
            }
            return false
        }
    }

    /// Sends what was gathered and receives; nil when something has come.
    private mutating func receive(
        _ part: RequestReader.Part, on worker: Worker, calling handler: any ReadinessHandler
    ) -> Pause? {
        if case .head = part, isTLSHello(on: worker) { return .end }
        if let pause = send(on: worker) { return pause }
        startDeadline(of: part, on: worker)
        return waitForInput(on: worker, calling: handler)
    }

    /// Receives unless that has to be waited for; nil when something has come.
    private mutating func waitForInput(on worker: Worker, calling handler: any ReadinessHandler) -> Pause? {
        let isIdle = isBetweenRequests
        if isIdle { releaseBuffers(to: worker) }
        // Of a large answer, when a part of the next request is there.
        if output.capacity > Self.uncounted { output = [] }
        guard hold(reader.bytes.capacity, on: worker) else { return .refusal(.outOfBuffers) }
        guard let reason = stream.waitUntilReadable(until: deadline, isIdle: isIdle, calling: handler) else {
            return .input
        }
        release(reader.bytes.capacity, on: worker)
        return receive(after: reason, on: worker, calling: handler)
    }

    /// Receives after a wait; nil when something has come.
    private mutating func receive(
        after reason: WakeReason, on worker: Worker, calling handler: any ReadinessHandler
    ) -> Pause? {
        switch reason {
        case .ready:
            switch receiveNow(on: worker) {
            case .received:
                // A client that always has more to send neither keeps others waiting nor outruns its deadline.
                streak += 1
                // What comes between two requests came in time, however late the loop looks at it.
                return worker.loop.now < deadline || isBetweenRequests ? nil : timedOut()
            case .wouldBlock: return waitForInput(on: worker, calling: handler)
            // Closed in the middle of a request, or cut off: nobody is left to be told.
            case .endOfInput, nil: return .end
            }
        case .timedOut: return timedOut()
        case .draining:
            // A request that the kernel already has counts as received, and is answered.
            if case .received = receiveNow(on: worker) { return nil }
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
    private func hold(_ capacity: Int, on worker: Worker) -> Bool {
        capacity <= Self.uncounted || worker.heldMemory.hold(capacity)
    }

    private func release(_ capacity: Int, on worker: Worker) {
        if capacity > Self.uncounted { worker.heldMemory.release(capacity) }
    }

    private mutating func startDeadline(of part: RequestReader.Part, on worker: Worker) {
        switch (part, awaited) {
        case (.start, .start), (.head, .head), (.body, .body): return
        case (.start, _): deadline = worker.loop.now + rules.deadlines.idle
        case (.head, _): deadline = worker.loop.now + rules.deadlines.head
        case (.body, _): deadline = worker.loop.now + rules.deadlines.body
        }
        awaited = part
    }

    /// One read into the room at the buffer's end; nil when the connection is broken.
    private mutating func receiveNow(on worker: Worker) -> TCPStream.ReceiveResult? {
        if reader.bytes.capacity == 0 { takeBuffers(of: worker) }
        let room = reader.makeRoom()
        return try? stream.receive(into: &reader.bytes, room: room)
    }

    // MARK: - Writing

    /// Writes the answer to the request at hand and leaves that behind.
    mutating func write(_ response: consuming Response, on worker: Worker) {
        isOver = !asked.keepsAlive || worker.loop.isDraining && !hasFurtherInput(on: worker)
        encode(response, closes: isOver, on: worker)
        reader.finishRequest()
        awaited = nil
        streak += 1
        // Where the client did not ask for the end it may be sending its next request already.
        lingers = asked.keepsAlive || !reader.isEmpty
    }

    /// Whether more than the request at hand has been received, be it by the kernel: while draining that is answered.
    private mutating func hasFurtherInput(on worker: Worker) -> Bool {
        if reader.hasFurtherBytes { return true }
        if case .received = receiveNow(on: worker) { return true }
        return false
    }

    private mutating func writeContinue(on worker: Worker) {
        if output.capacity == 0 { takeBuffers(of: worker) }
        output.append(contentsOf: ResponseEncoder.continueResponse)
    }

    private mutating func encode(_ response: consuming Response, closes: Bool, on worker: Worker) {
        if output.capacity == 0 { takeBuffers(of: worker) }
        hasAnswered = true
        let traits = ResponseEncoder.Traits(
            omitsBody: asked.omitsBody, closes: closes, isOldVersion: asked.isOldVersion, isSecure: isSecure
        )
        worker.encode(response, traits, requestID: requestID, into: &output)
        worker.metrics.note(response, to: asked.method)
        if rules.accessLog != nil { log(response) }
    }

    /// Sends as much of what was written as the socket takes now; nil when that is all of it, `output` when the rest has to
    /// wait.
    private mutating func send(on worker: Worker) -> Pause? {
        while sent < output.count {
            guard let count = try? stream.send(output.span.extracting(sent..<output.count)) else {
                dropOutput()
                return .end
            }
            if count == 0 {
                // Its client reads slowly: an end that it is not waited for with can cut the answer off.
                lingers = true
                if reader.bytes.capacity > Self.uncounted { reader.releaseRoom() }
                // At once: until the wait begins others may have written as much.
                if hold(waitingBytes, on: worker) { return .output }
                dropOutput()
                return .end
            }
            sent += count
        }
        // Turns are about time, which large answers take as well.
        streak += sent / Self.outputLimit
        output.removeAll(keepingCapacity: true)
        sent = 0
        return nil
    }

    /// Bytes of buffers while output waits.
    private var waitingBytes: Int {
        [output.capacity, reader.bytes.capacity].reduce(0) { $1 > Self.uncounted ? $0 + $1 : $0 }
    }

    /// Who has not taken this will take nothing else.
    private mutating func dropOutput() {
        output.removeAll(keepingCapacity: true)
        sent = 0
        lingers = false
    }

    /// Sends what is left after a pause for output; false when the client does not take it, and then nothing more is sent.
    mutating func flush(on worker: Worker) async -> Bool {
        var deadline = worker.loop.now + rules.deadlines.send
        var sentAtRenewal = sent
        while true {
            let reason = await stream.waitUntilWritable(until: deadline)
            release(waitingBytes, on: worker)
            guard reason == .ready else {
                dropOutput()
                return false
            }
            switch send(on: worker) {
            case nil: return true
            case .output: break
            default: return false
            }
            if sent - sentAtRenewal >= Self.renewal {
                sentAtRenewal = sent
                deadline = worker.loop.now + rules.deadlines.send
            }
        }
    }

    // MARK: - Buffers

    /// Takes the buffers that it has not.
    private mutating func takeBuffers(of worker: Worker) {
        var pair = worker.takeBuffers()
        if reader.bytes.capacity == 0 { swap(&reader.bytes, &pair.input) }
        if output.capacity == 0 { swap(&output, &pair.output) }
    }

    /// Gives the buffers back if there is nothing in them.
    private mutating func releaseBuffers(to worker: Worker) {
        guard output.isEmpty, let input = reader.takeEmptyBuffer() else { return }
        var pair = BufferPool.Pair(input: input)
        swap(&pair.output, &output)
        worker.giveBuffers(pair)
    }

    // MARK: - Closing

    /// Sends the last answer and ends the connection.
    ///
    /// Closing with unread input makes the kernel send a reset, which can overtake the answer (RFC 9112, section 9.6);
    /// where the client may still be sending the rest is read and dropped for a moment.
    mutating func finish(on worker: Worker) async {
        let isTaken = await sendAll(on: worker)
        // Before the wait: large ones would be held by nobody's count.
        reader.dropAll()
        releaseBuffers(to: worker)
        if isTaken && lingers {
            stream.finishSending()
            await linger(on: worker)
        }
    }

    private mutating func sendAll(on worker: Worker) async -> Bool {
        switch send(on: worker) {
        case nil: true
        case .output: await flush(on: worker)
        default: false
        }
    }

    private mutating func linger(on worker: Worker) async {
        let deadline = worker.loop.now + rules.deadlines.linger
        if reader.bytes.capacity == 0 { takeBuffers(of: worker) }
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

    private func log(_ response: borrowing Response) {
        let (head, bytes) = (reader.partialHead, reader.requestBytes)
        let isKnown = rules.service.isKnown(head.path, of: head.method, in: bytes)
        rules.accessLog?.write(
            AccessLog.Entry(
                client: rules.https.client(of: head, in: bytes, from: origin)?.description ?? "unix",
                method: bytes.text(head.methodName),
                path: isKnown ? bytes.text(head.path) : nil,
                minorVersion: head.minorVersion,
                status: response.status.rawValue,
                bytes: head.method == .head ? 0 : response.body.count,
                microseconds: (MonotonicTime.now - started).count / 1_000,
                unixTime: Worker.unixTime,
                requestID: requestID.text
            )
        )
    }
}
