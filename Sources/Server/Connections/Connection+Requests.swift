import Cryptography
import EventLoop
import HTTP
import System
import TokenService

/// Receiving requests and answering them.
extension Connection {
    /// Bodies of up to this many bytes are read at once; longer ones are long work.
    private static let shortBody = 32 << 10

    /// Answers the next request, or waits for it.
    mutating func serve(on context: LoopContext, for driver: ConnectionDriver) -> Bool {
        // After a reload, before the next request.
        if settings !== context.connectionSettings, reader.isBetweenRequests { takeSettings(of: context) }
        if output.count >= Self.outputLimit, !send(on: context, for: driver) { return false }
        if context.loop.isAbandoned {
            state = .closing(lingers: !output.isEmpty)
            return true
        }
        if steps >= Self.stepLimit {
            // Any number of connections may be in the queue, so the memory that each holds is counted.
            guard account(for: waitingBytes, on: context) else {
                refuse(.outOfBuffers, on: context)
                return true
            }
            context.loop.enqueue(driver, for: .usual)
            return false
        }
        switch reader.next() {
        case .request:
            guard stream.acceptsClient(at: LoopContext.unixTime) else {
                context.noteClosed("its client's certificate has expired, or tls.client_ca has changed")
                state = .closing(lingers: true)
                return true
            }
            if reader.bodyCount > Self.shortBody {
                state = .longRequest(since: context.loop.now)
            } else {
                answerRequest(on: context, for: driver)
            }
            return true
        case .sendContinue:
            // A client that is redirected must not be asked for its token in clear.
            let head = reader.partialHead
            let decision = settings.https.decision(on: head, in: reader.requestBytes, from: peer)
            if let response = Self.unserved(decision, head, in: reader.requestBytes, from: peer, settings) {
                endUnread(with: response, on: context)
                return true
            }
            if output.capacity == 0 { takeBuffers(of: context) }
            output.append(contentsOf: ResponseEncoder.continueResponse)
            return true
        case .needsMore(let part): return receive(part, on: context, for: driver)
        case .refused(let refusal):
            if !isTLSHello(on: context) { refuse(refusal, on: context) }
            return true
        }
    }

    private mutating func takeSettings(of context: LoopContext) {
        settings = context.connectionSettings
        reader.limits = settings.limits
        peer = settings.https.peer(
            address: peer.address, isTLS: peer.isTLS, port: peer.port, hidesClient: peer.hidesClient)
    }

    /// Whether the client speaks TLS on a plain HTTP port: it would not understand any answer.
    private mutating func isTLSHello(on context: LoopContext) -> Bool {
        guard reader.beginsLikeTLS else { return false }
        context.noteClosed("TLS on a plain HTTP port")
        state = .closing(lingers: false)
        return true
    }

    // MARK: - Receiving

    /// Sends the gathered output, then receives, or waits for input.
    private mutating func receive(
        _ part: RequestReader.Part, on context: LoopContext, for driver: ConnectionDriver
    ) -> Bool {
        if case .head = part, isTLSHello(on: context) { return true }
        guard send(on: context, for: driver) else { return false }
        return waitForInput(part, until: startDeadline(of: part, on: context), on: context, for: driver)
    }

    /// The deadline for a part: the running one, or a new one if another part was awaited before.
    private mutating func startDeadline(of part: RequestReader.Part, on context: LoopContext) -> MonotonicTime {
        let limit: Nanoseconds
        switch (part, state) {
        case (.start, .reading(.start, let deadline)), (.head, .reading(.head, let deadline)),
            (.body, .reading(.body, let deadline)):
            return deadline
        case (.start, _): limit = settings.idleTime
        case (.head, _): limit = settings.headTime
        case (.body, _): limit = settings.bodyTime
        }
        let deadline = context.loop.now + limit
        state = .reading(part, until: deadline)
        return deadline
    }

    private mutating func waitForInput(
        _ part: RequestReader.Part, until deadline: MonotonicTime, on context: LoopContext, for driver: ConnectionDriver
    ) -> Bool {
        let isIdle = if case .start = part { true } else { false }
        if isIdle {
            releaseBuffers(to: context)
        } else if output.capacity > 2 * BufferPool.bufferSize {
            // A large answer's buffer is not kept while a part of the next request is awaited.
            output = []
        }
        // An idle connection may hold the first half of an empty line.
        if !reader.isEmpty, context.bufferBudget.isScarce { releaseRoom() }
        guard account(for: waitingBytes, on: context) else {
            refuse(.outOfBuffers, on: context)
            return true
        }
        var traits: WaitTraits = isIdle ? .idle : .unfinished
        if isExpendable { traits.insert(.expendable) }
        guard let reason = stream.waitUntilReadable(until: deadline, traits, calling: driver) else {
            return false
        }
        return receive(part, until: deadline, after: reason, on: context, for: driver)
    }

    /// Receives after a wait.
    mutating func receive(
        _ part: RequestReader.Part, until deadline: MonotonicTime, after reason: WakeReason, on context: LoopContext,
        for driver: ConnectionDriver
    ) -> Bool {
        let isIdle = if case .start = part { true } else { false }
        switch reason {
        case .ready:
            switch receiveNow(on: context) {
            case .received:
                // A client that keeps sending must neither hold up other connections nor escape its deadline.
                steps += stream.takeSteps()
                // Input that arrives between two requests is in time, however late the loop looks at it.
                if context.loop.now >= deadline, !isIdle { refuseLate(part, on: context) }
                return true
            case .wouldBlock: return waitForInput(part, until: deadline, on: context, for: driver)
            // The client has closed the connection, perhaps in the middle of a request, or it is lost.
            case .endOfInput, nil: return close()
            }
        case .timedOut where !isIdle:
            refuseLate(part, on: context)
            return true
        case .timedOut, .draining, .displaced:
            // A request that the kernel has already received is answered. After a pause of the whole machine all deadlines may
            // have passed, with more events than the loop takes at once.
            if case .received = receiveNow(on: context) { return true }
            return close()
        case .abandoned: return close()
        }
    }

    private mutating func refuseLate(_ part: RequestReader.Part, on context: LoopContext) {
        refuse(part == .body ? .bodyTimeout : .headTimeout, on: context)
    }

    /// Reads once into the free room at the buffer's end; nil if the connection is lost.
    mutating func receiveNow(on context: LoopContext) -> ReceiveResult? {
        if reader.bytes.capacity == 0 { takeBuffers(of: context) }
        let room = reader.makeRoom()
        let result = try? stream.receive(into: &reader.bytes, room: room)
        if case .received(let count) = result, count > Self.outputLimit { context.loop.noteLongStep() }
        return result
    }

    // MARK: - Answering

    /// Answers the current request, or begins to wait for its answer.
    mutating func answerRequest(on context: LoopContext, for driver: ConnectionDriver) {
        give(makeAnswer(on: context), since: nil, on: context, for: driver)
    }

    /// The answer to the current request; a function, as a variable in place of its result would be copied with each request.
    private mutating func makeAnswer(on context: LoopContext) -> Answer {
        noteBeginning()
        let answer: Answer
        (answer, request) = Self.answer(to: reader, from: peer, client, certificate, by: settings, on: context)
        return answer
    }

    /// Notes what the access log has to know of the current request, and who sent it: once, as forwarded headers may take long to read.
    mutating func noteBeginning() {
        guard settings.findsClient else { return }
        if settings.accessLog != nil { answeringBegan = .now }
        let head = reader.partialHead
        client = settings.https.client(of: head, in: reader.requestBytes, from: peer)
        guard settings.accessLog != nil else { return }
        entry = AccessLog.Entry(
            client: client?.description ?? "unix", method: head.method,
            path: settings.router.loggedPath(head, in: reader.requestBytes), minorVersion: head.minorVersion,
            listener: Int(listener), tlsVersion: stream.tlsVersion)
    }

    /// Writes an answer, or begins to wait for it.
    ///
    /// - Parameter since: When the request was dropped; nil if it was not.
    mutating func give(
        _ answer: consuming Answer, since: MonotonicTime?, on context: LoopContext, for driver: ConnectionDriver
    ) {
        switch consume answer {
        case .now(let response): write(response, since: since, on: context)
        case .inPieces(let answer): writeHead(of: answer, since: since, on: context)
        case .later(let answer): begin(answer, since: since, on: context, for: driver)
        }
    }

    private static func answer(
        to reader: borrowing RequestReader, from peer: HTTPSPolicy.Peer, _ client: IPAddress?,
        _ certificate: ClientCertificate?, by settings: ConnectionSettings, on context: LoopContext
    ) -> (Answer, RequestSummary) {
        let (request, bytes) = (reader.request, reader.requestBytes)
        var summary = RequestSummary(request.head)
        summary.id = context.requestID(request.head, in: bytes, from: peer)
        let decision = settings.https.decision(on: request.head, in: bytes, from: peer)
        if decision == .redirected, let cause = settings.https.causeOfLoop(request.head, in: bytes, from: peer) {
            context.redirectLoops.log(cause, requestID: summary.id)
        }
        if let response = unserved(decision, request.head, in: bytes, from: peer, settings) {
            return (.now(response), summary)
        }
        if case .served(isSecure: true) = decision {
            summary.sendsHSTS = settings.https.maySendHSTS(request.head, in: bytes)
        }
        if let service = settings.plainService {
            return (service.answer(to: request, in: bytes, requestID: summary.id), summary)
        }
        let source = RequestSource(peer: peer, client: client, certificate: certificate)
        return (settings.router.answer(to: request, in: bytes, requestID: summary.id, from: source), summary)
    }

    /// The answer to a request that is redirected or refused; nil if it is served.
    private static func unserved(
        _ decision: HTTPSPolicy.Decision, _ head: RequestHead, in bytes: Span<UInt8>, from peer: HTTPSPolicy.Peer,
        _ settings: ConnectionSettings
    ) -> Response? {
        switch decision {
        case .served: nil
        case .redirected: settings.https.redirect(head, in: bytes, from: peer) ?? Response(.missingHost)
        case .refused(let refusal): Response(refusal)
        }
    }

    // MARK: - Writing

    /// Writes the answer to the current request, and drops the request unless it was dropped before.
    mutating func write(_ response: consuming Response, since: MonotonicTime?, on context: LoopContext) {
        let isLast = !request.keepsAlive || context.loop.isDraining && !hasFurtherInput(on: context)
        encode(response, closes: isLast, on: context)
        if let since {
            context.metrics.noteWait(context.loop.now - since, of: request.method)
        } else {
            reader.finishRequest()
        }
        steps += 1
        isExpendable = false
        // A client that did not ask to close the connection may already be sending its next request.
        state = isLast ? .closing(lingers: request.keepsAlive || !reader.isEmpty) : .answering
    }

    /// Whether more input has arrived behind the current request, here or in the kernel: while draining it is still answered.
    private mutating func hasFurtherInput(on context: LoopContext) -> Bool {
        if reader.hasFurtherBytes { return true }
        guard case .received = receiveNow(on: context) else { return false }
        return true
    }

    mutating func encode(_ response: consuming Response, closes: Bool, on context: LoopContext) {
        if output.capacity == 0 { takeBuffers(of: context) }
        let traits = ResponseEncoder.Traits(
            omitsBody: request.omitsBody, closes: closes, isOldVersion: request.isOldVersion,
            sendsHSTS: request.sendsHSTS
        )
        context.encode(response, traits, requestID: request.id, into: &output)
        context.metrics.requests.note(response, to: request.method)
        if settings.accessLog != nil { log(response) }
    }

    private mutating func log(_ response: borrowing Response) {
        guard var entry = entry.take() else { return }
        entry.requestID = request.id
        entry.status = response.status.rawValue
        entry.errorCode = ErrorCode.number(of: response.status, response.code)
        entry.bytes = request.omitsBody ? 0 : response.body.count + response.laterBytes
        entry.microseconds = (MonotonicTime.now - answeringBegan).count / 1_000
        entry.unixTime = LoopContext.unixTime
        settings.accessLog?.write(entry)
    }
}
