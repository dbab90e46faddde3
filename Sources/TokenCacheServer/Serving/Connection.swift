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
    private let worker: Worker
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
    /// The current request's.
    private(set) var requestID = RequestID.none
    /// Requests received or answered since others last had their turn.
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

    init(_ stream: consuming TCPStream, from origin: HTTPSPolicy.Origin, on worker: Worker) {
        self.stream = stream
        self.origin = origin
        self.worker = worker
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
    ///   - handler: Is called with such a reason after a pause for input.
    mutating func proceed(after reason: WakeReason?, calling handler: any ReadinessHandler) -> Pause {
        // Rarely: after a reload, and then before the next request.
        if rules !== worker.rules, awaited == nil || awaited == .start { takeRules() }
        if let reason {
            // Others have had their turn.
            streak = 0
            release(reader.bytes.capacity)
            if let pause = receive(after: reason, calling: handler) { return pause }
        }
        while true {
            if isOver || output.count >= Self.outputLimit, let pause = send() { return pause }
            if isOver { return lingers ? .finish : .end }
            if worker.loop.isAbandoned { return output.isEmpty ? .end : .finish }
            if streak >= Self.streakLimit {
                streak = 0
                return .turn
            }
            switch reader.next() {
            case .request:
                switch readRequest() {
                case .answer(let response): write(response)
                case .store(let tokenInfo, let id): return .store(tokenInfo: tokenInfo, id: id)
                }
            case .sendContinue: writeContinue()
            case .needsMore(let part): if let pause = receive(part, calling: handler) { return pause }
            case .refused(let refusal): return isTLSHello() ? .end : .refusal(refusal)
            }
        }
    }

    private mutating func takeRules() {
        rules = worker.rules
        reader.limits = rules.limits
        origin = rules.https.origin(address: origin.address, isTLS: origin.isTLS)
        // That of the request before, which nothing replaces where requests have none.
        if !rules.hasRequestIDs { requestID = .none }
    }

    /// Answers a request that cannot be read on, and closes.
    mutating func refuse(_ refusal: Refusal) async {
        if rules.accessLog != nil { started = .now }
        let given = reader.partialHead.forwarding.requestID
        if rules.hasRequestIDs { requestID = worker.requestID(given, in: reader.requestBytes, from: origin) }
        encode(rules.service.answer(refusal), to: reader.partialHead, closes: true)
        lingers = true
        await finish()
    }

    // MARK: - Reading

    private mutating func readRequest() -> TokenService.Operation {
        if rules.accessLog != nil { started = .now }
        let request = reader.request
        let given = request.head.forwarding.requestID
        if rules.hasRequestIDs { requestID = worker.requestID(given, in: reader.requestBytes, from: origin) }
        switch rules.https.decision(on: request.head.forwarding, in: reader.requestBytes, from: origin) {
        case .served(let isSecure):
            self.isSecure = isSecure
            return rules.service.operation(for: request, in: reader.requestBytes, requestID: requestID)
        case .redirected:
            isSecure = false
            guard let redirect = rules.https.redirect(request.head, in: reader.requestBytes) else {
                return .answer(rules.service.answer(.missingHost))
            }
            return .answer(redirect)
        }
    }

    /// Whether the client speaks TLS where plain HTTP is expected: no answer of ours would mean anything to it.
    private func isTLSHello() -> Bool {
        guard reader.beginsLikeTLS else { return false }
        worker.noteClosed("TLS on a plain HTTP port")
        return true
    }

    // MARK: - Before the first request

    /// Reads the PROXY protocol header that the connection has to begin with, and takes its client for our own.
    ///
    /// Not a byte more: what follows may be TLS. False when there is none, or it comes from somebody who is not trusted to
    /// say who the client is.
    mutating func readProxyHeader() async -> Bool {
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
    mutating func startTLS(_ context: TLSContext) async -> Bool {
        do throws(TLSError) {
            try await stream.startTLS(context, until: worker.loop.now + rules.deadlines.handshake)
            worker.metrics.handshakes.add()
            origin = rules.https.origin(address: origin.address, isTLS: true)
            return true
        } catch {
            worker.noteClosed("\(error)")
            worker.metrics.handshakeFailures.add(error.cause)
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

    /// Sends what was gathered and receives; nil when something has come.
    private mutating func receive(_ part: RequestReader.Part, calling handler: any ReadinessHandler) -> Pause? {
        if part == .head && isTLSHello() { return .end }
        if let pause = send() { return pause }
        startDeadline(of: part)
        return waitForInput(calling: handler)
    }

    /// Receives unless that has to be waited for; nil when something has come.
    private mutating func waitForInput(calling handler: any ReadinessHandler) -> Pause? {
        let isIdle = awaited == .start
        if isIdle { releaseBuffers() }
        guard hold(reader.bytes.capacity) else { return .refusal(.outOfBuffers) }
        guard let reason = stream.waitUntilReadable(until: deadline, isIdle: isIdle, calling: handler) else {
            return .input
        }
        release(reader.bytes.capacity)
        return receive(after: reason, calling: handler)
    }

    /// Receives after a wait; nil when something has come.
    private mutating func receive(after reason: WakeReason, calling handler: any ReadinessHandler) -> Pause? {
        switch reason {
        case .ready:
            switch receiveNow() {
            case .received:
                // A client that always has more to send neither keeps others waiting nor outruns its deadline.
                streak += 1
                return worker.loop.now < deadline ? nil : timedOut()
            case .wouldBlock: return waitForInput(calling: handler)
            // Closed in the middle of a request, or cut off: nobody is left to be told.
            case .endOfInput, nil: return .end
            }
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
        case .start: deadline = worker.loop.now + rules.deadlines.idle
        case .head: deadline = worker.loop.now + rules.deadlines.head
        case .body: deadline = worker.loop.now + rules.deadlines.body
        }
    }

    /// One read into the room at the buffer's end; nil when the connection is broken.
    private mutating func receiveNow() -> TCPStream.ReceiveResult? {
        if reader.bytes.capacity == 0 { takeBuffers() }
        let room = reader.makeRoom()
        return try? stream.receive(into: &reader.bytes, room: room)
    }

    // MARK: - Writing

    /// Writes the answer to the request at hand and leaves that behind.
    mutating func write(_ response: consuming Response) {
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

    private mutating func writeContinue() {
        if output.capacity == 0 { takeBuffers() }
        output.append(contentsOf: ResponseEncoder.continueResponse)
    }

    private mutating func encode(_ response: consuming Response, to head: RequestHead, closes: Bool) {
        if output.capacity == 0 { takeBuffers() }
        let traits = ResponseEncoder.Traits(
            omitsBody: head.method == .head, closes: closes, isOldVersion: head.minorVersion == 0, isSecure: isSecure
        )
        worker.encode(response, traits, requestID: requestID, into: &output)
        worker.metrics.note(response, to: head.method)
        if rules.accessLog != nil { log(response, to: head) }
    }

    /// Sends as much of what was written as the socket takes now; nil when that is all of it, `output` when the rest has to
    /// wait.
    private mutating func send() -> Pause? {
        while sent < output.count {
            guard let count = try? stream.send(output.span.extracting(sent..<output.count)) else {
                dropOutput()
                return .end
            }
            if count == 0 {
                // At once: until the wait begins others may have written as much.
                if hold(output.capacity) { return .output }
                dropOutput()
                return .end
            }
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

    /// Sends what is left after a pause for output; false when the client does not take it, and then nothing more is sent.
    mutating func flush() async -> Bool {
        var deadline = worker.loop.now + rules.deadlines.send
        var sentAtRenewal = sent
        while true {
            let reason = await stream.waitUntilWritable(until: deadline)
            release(output.capacity)
            guard reason == .ready else {
                dropOutput()
                return false
            }
            switch send() {
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
    private mutating func takeBuffers() {
        let pair = worker.takeBuffers()
        if reader.bytes.capacity == 0 { reader.bytes = pair.input }
        if output.capacity == 0 { output = pair.output }
    }

    /// Gives the buffers back if there is nothing in them.
    private mutating func releaseBuffers() {
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
    mutating func finish() async {
        let isTaken = await sendAll()
        // Before the wait: large ones would be held by nobody's count.
        reader.bytes.removeAll(keepingCapacity: true)
        releaseBuffers()
        if isTaken && lingers {
            stream.finishSending()
            await linger()
        }
    }

    private mutating func sendAll() async -> Bool {
        switch send() {
        case nil: true
        case .output: await flush()
        default: false
        }
    }

    private mutating func linger() async {
        let deadline = worker.loop.now + rules.deadlines.linger
        if reader.bytes.capacity == 0 { takeBuffers() }
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
                unixTime: worker.unixTime,
                requestID: requestID.text
            )
        )
    }
}
