import Cryptography
import EventLoop
import HTTP
import System
import TokenService

/// One client's connection: receives requests, passes them to the service, and sends the answers in order.
///
/// All of it is plain function calls from one wait to the next, except for opening, which comes first and is async
/// (`ConnectionDriver.swift`). This file has the states, the calls that end a wait, sending and closing; receiving and answering
/// requests are in `Connection+Requests.swift`, answers that come later or are long in `Connection+Waiting.swift`.
///
/// Functions that may begin a wait return whether the connection goes on at once. If not, the loop or the pending answer will
/// call its driver, unless the connection is closed.
///
/// Belongs to its loop's thread.
struct Connection: ~Copyable {
    /// What a connection is doing.
    ///
    /// Each request replaces it a few times, which is cheap as long as the payloads are small and few of them are references.
    enum State {
        /// Waits for a part of a request, until the deadline.
        case reading(RequestReader.Part, until: MonotonicTime)
        /// Answers the requests in the buffer; no deadline runs. The first state.
        case answering
        /// The request at hand has a long body, and is in the queue of long work since then.
        case longRequest(since: MonotonicTime)
        /// The request was dropped, and its answer, which takes long to begin, is in the queue of long work since then.
        case longAnswer(PendingAnswer, since: MonotonicTime)
        /// The request was dropped then, and its answer has begun and will come.
        case waiting(PendingAnswer, since: MonotonicTime)
        /// Sends the rest of a long answer, in pieces, between which it is in the queue of long work.
        case sending(LongRest)
        /// The output ends with the connection's last answer; `lingers` if the client may still be sending.
        case closing(lingers: Bool)
        /// All is sent, and input is read and dropped until the deadline.
        case lingering(until: MonotonicTime)
        /// The end; the driver is freed.
        case closed
    }

    var state = State.answering
    var stream: TCPStream
    var peer: HTTPSPolicy.Peer
    /// What the client's certificate says; nil if the client has shown none.
    var certificate: ClientCertificate?
    /// The settings for the current request.
    var settings: ConnectionSettings
    var reader: RequestReader
    /// The current request, or the one that was dropped and is still to be answered.
    var request = RequestSummary(RequestHead())
    /// When the answering of the current request began; set only if there is an access log.
    var answeringBegan = MonotonicTime.never
    /// Who sent the current request; set only if the settings say `findsClient`.
    var client: IPAddress?
    /// The access log's entry for the current request, without its answer; nil without an access log.
    var entry: AccessLog.Entry?
    var output: [UInt8] = []
    /// How much of `output` the socket has taken.
    private var sent = 0
    /// When the client must have read more of the output; `never` while the connection does not wait for that.
    private var sendDeadline = MonotonicTime.never
    /// Bytes sent since `sendDeadline` was set.
    private var sentSinceRenewal = 0
    /// Whether the connection is closed first when there are too many: it is not refused already, and got no answer.
    var isExpendable = true
    /// Whether the connection is beyond the limit: it is answered with 503 and closed, and closing it makes no room for another.
    var isRefused = false
    /// Receives and answers since the last wait, or since other connections were last served.
    var steps = 0
    /// The number of the listener that accepted the connection.
    let listener: UInt16
    /// Bytes counted for this connection in the context's `bufferBudget`.
    private(set) var countedBytes = 0

    /// Answers are gathered while further requests are in the buffer, up to this many bytes.
    static let outputLimit = 64 << 10
    /// Steps after which other connections are served.
    static let stepLimit = 32
    /// Bytes that a client has to read before its time limit for the rest begins again: a client that reads a byte now and then
    /// cannot keep an answer waiting for hours.
    private static let renewal = 256 << 10
    /// How long a client that sends nothing more is waited for before the connection is closed.
    private static let lingerTime = Nanoseconds(.seconds(2))

    /// - Parameter listener: The number of the listener that accepted the connection.
    init(_ stream: consuming TCPStream, from peer: HTTPSPolicy.Peer, through listener: Int, on context: LoopContext) {
        self.listener = UInt16(clamping: listener)
        self.stream = stream
        self.peer = peer
        settings = context.connectionSettings
        reader = RequestReader(limits: settings.limits)
    }

    // MARK: - The ends of waits

    /// Continues after a wait that the loop has ended.
    ///
    /// - Parameters:
    ///   - reason: Why it has ended.
    ///   - context: The loop's. It is a parameter throughout: a stored reference would be retained and released with each
    ///     use.
    ///   - driver: The connection's owner, which is called when a wait ends.
    mutating func wake(after reason: WakeReason, on context: LoopContext, for driver: ConnectionDriver) {
        // Other connections have been served.
        steps = 0
        let goesOn =
            switch state {
            case .waiting(let answer, let since): endWait(for: answer, since, after: reason, on: context, for: driver)
            // In all other states, sending the output comes first.
            case _ where !output.isEmpty: reason == .ready ? send(on: context, for: driver) : close()
            case .reading(let part, let deadline):
                receive(part, until: deadline, after: reason, on: context, for: driver)
            case .answering, .longRequest, .longAnswer, .sending, .closing, .lingering, .closed:
                reason == .ready || close()
            }
        if goesOn { run(on: context, for: driver) }
    }

    /// Continues after `EventLoop.enqueue`: long work in its own part of the loop's turns, one step at a time.
    mutating func resume(on context: LoopContext, for driver: ConnectionDriver) {
        steps = 0
        if workLong(on: context, for: driver) { run(on: context, for: driver) }
    }

    /// Continues with the answer that the connection was waiting for.
    mutating func take(_ answer: consuming Answer, on context: LoopContext, for driver: ConnectionDriver) {
        guard case .waiting(_, let since) = state else {
            preconditionFailure("an answer comes to a connection that waits for it")
        }
        stream.endWait()
        state = .answering
        give(answer, since: since, on: context, for: driver)
        yieldToOthers()
        run(on: context, for: driver)
    }

    /// Receives, answers and sends until the connection waits or is closed.
    mutating func run(on context: LoopContext, for driver: ConnectionDriver) {
        var goesOn = true
        while goesOn {
            switch state {
            case .reading, .answering: goesOn = serve(on: context, for: driver)
            case .longRequest, .longAnswer, .sending: goesOn = queueLongWork(on: context, for: driver)
            case .closing: goesOn = finish(on: context, for: driver)
            case .lingering(let deadline): goesOn = linger(until: deadline, on: context, for: driver)
            case .waiting, .closed: goesOn = false
            }
        }
    }

    // MARK: - Sending

    /// Sends the output, or waits for the client to read it.
    mutating func send(on context: LoopContext, for driver: ConnectionDriver) -> Bool {
        while !sendNow(on: context) {
            switch state {
            case .closed: return false
            // The client reads slowly. Closing without waiting for it could cut the answer off.
            case .closing: state = .closing(lingers: true)
            default: break
            }
            if reader.bytes.capacity > 2 * BufferPool.bufferSize { reader.releaseRoom() }
            guard account(for: waitingBytes, on: context) else { return close() }
            if sendDeadline == .never || sentSinceRenewal >= Self.renewal {
                sendDeadline = context.loop.now + settings.bodyTime
                sentSinceRenewal = 0
            }
            switch stream.waitUntilWritable(until: sendDeadline, calling: driver) {
            case nil: return false
            case .ready: break
            case .timedOut, .draining, .displaced, .abandoned: return close()
            }
        }
        if sendDeadline != .never { endSendDeadline() }
        return true
    }

    /// Sends what the socket takes at once.
    ///
    /// - Returns: Whether that was all; if the connection is lost, it is closed.
    mutating func sendNow(on context: LoopContext) -> Bool {
        while sent < output.count {
            guard let count = try? stream.send(output.span.extracting(sent..<output.count)) else { return close() }
            if count == 0 { return false }
            sent += count
            sentSinceRenewal += count
        }
        // A large answer takes as long as several short answers.
        if sent > Self.outputLimit {
            steps += sent / Self.outputLimit
            context.loop.noteLongStep()
        }
        output.removeAll(keepingCapacity: true)
        sent = 0
        return true
    }

    /// Ends the deadline, unless pieces of a long answer follow, which have one deadline together.
    private mutating func endSendDeadline() {
        if case .sending = state { return }
        sendDeadline = .never
    }

    // MARK: - Closing

    /// Answers a request that cannot be read further, as the connection's last.
    mutating func refuse(_ refusal: Refusal, on context: LoopContext) {
        endUnread(with: Response(refusal), on: context)
    }

    /// Answers a request that is not read further, as the connection's last.
    mutating func endUnread(with response: consuming Response, on context: LoopContext) {
        noteBeginning()
        let head = reader.partialHead
        request = RequestSummary(head)
        request.id = context.requestID(head, in: reader.requestBytes, from: peer)
        if case .served(isSecure: true) = settings.https.decision(on: head, in: reader.requestBytes, from: peer) {
            request.sendsHSTS = settings.https.maySendHSTS(head, in: reader.requestBytes)
        }
        end(with: response, on: context)
    }

    /// Answers the current request, as the connection's last.
    mutating func end(with response: consuming Response, on context: LoopContext) {
        encode(response, closes: true, on: context)
        state = .closing(lingers: true)
    }

    /// Closes the connection without sending anything more.
    ///
    /// - Returns: False.
    mutating func close() -> Bool {
        state = .closed
        return false
    }

    /// Sends the last answer and ends the connection.
    ///
    /// Closing with unread input makes the kernel send a reset, which can overtake the answer (RFC 9112, section 9.6). If the
    /// client may still be sending, its input is read and dropped for a moment.
    private mutating func finish(on context: LoopContext, for driver: ConnectionDriver) -> Bool {
        guard send(on: context, for: driver) else { return false }
        if case .closing(lingers: false) = state, !hasUnreadInput(on: context) { return close() }
        stream.finishSending()
        // A client may read the answer only when it has sent all of a large body.
        state = .lingering(until: context.loop.now + settings.bodyTime)
        return true
    }

    private mutating func hasUnreadInput(on context: LoopContext) -> Bool {
        guard stream.mayBeReadable, case .received = receiveNow(on: context) else { return false }
        return true
    }

    private mutating func linger(
        until deadline: MonotonicTime, on context: LoopContext, for driver: ConnectionDriver
    ) -> Bool {
        // A client that goes on sending holds up a stop no longer than one that is silent.
        let deadline = context.loop.isDraining ? min(deadline, context.loop.now + Self.lingerTime) : deadline
        state = .lingering(until: deadline)
        while context.loop.now < deadline {
            reader.dropAll()
            guard steps < Self.stepLimit else {
                context.loop.enqueue(driver, for: .usual)
                return false
            }
            switch receiveNow(on: context) {
            case .received: steps += stream.takeSteps()
            case .wouldBlock:
                releaseBuffers(to: context)
                // Never more than was counted before.
                _ = account(for: waitingBytes, on: context)
                let silence = context.loop.now + Self.lingerTime
                let traits: WaitTraits = isRefused ? [] : .expendable
                switch stream.waitUntilReadable(until: min(deadline, silence), traits, calling: driver) {
                case nil: return false
                case .ready: break
                case .timedOut, .draining, .displaced, .abandoned: return close()
                }
            case .endOfInput, nil: return close()
            }
        }
        return close()
    }

    // MARK: - Buffers

    /// Bytes that the connection holds while it waits.
    var waitingBytes: Int {
        let held =
            switch state {
            case .longAnswer(let answer, _), .waiting(let answer, _): answer.bytes
            case .sending(let rest): rest.bytes
            case .reading, .answering, .longRequest, .closing, .lingering, .closed: 0
            }
        return reader.bytes.capacity + output.capacity + held
    }

    /// Replaces the number of bytes that are counted for this connection.
    ///
    /// - Returns: False if `limits.buffers` leaves no room for them, even without the connections that wait for their clients;
    ///   then nothing changes.
    mutating func account(for bytes: Int, on context: LoopContext) -> Bool {
        if bytes > countedBytes {
            guard context.bufferBudget.take(bytes - countedBytes, displacingOn: context.loop) else { return false }
        } else if bytes < countedBytes {
            context.bufferBudget.giveBack(countedBytes - bytes)
        }
        countedBytes = bytes
        return true
    }

    /// Takes the buffers that the connection does not have.
    mutating func takeBuffers(of context: LoopContext) {
        var pair = context.takeBuffers()
        if reader.bytes.capacity == 0 { swap(&reader.bytes, &pair.input) }
        if output.capacity == 0 { swap(&output, &pair.output) }
    }

    /// Returns the buffers to the pool, or frees the one that there is, if both are empty.
    mutating func releaseBuffers(to context: LoopContext) {
        guard output.isEmpty else { return }
        guard let input = reader.takeEmptyBuffer() else {
            // A large input buffer was freed before, so only the output has one.
            if reader.isEmpty { output = [] }
            return
        }
        var pair = BufferPool.Pair(input: input)
        swap(&pair.output, &output)
        context.giveBuffers(pair)
    }

    /// Frees memory that the connection can do without.
    mutating func releaseRoom() {
        if output.isEmpty { output = [] }
        reader.releaseRoom()
    }
}

/// The parts of a request's head that are needed to answer and count the request.
///
/// A few bytes, so that the request's head, which is ten times as large, need not be kept until the answer comes.
struct RequestSummary {
    let method: Method
    /// Whether the client lets the connection stay open after the answer; a server that drains closes it nevertheless.
    let keepsAlive: Bool
    /// Whether the client speaks HTTP/1.0.
    let isOldVersion: Bool
    /// Whether the answer has Strict-Transport-Security.
    var sendsHSTS = false
    var id = RequestID.none

    init(_ head: RequestHead) {
        method = head.method
        keepsAlive = head.keepsAlive
        isOldVersion = head.minorVersion == 0
    }

    /// Whether the answer has no body.
    var omitsBody: Bool {
        if case .head = method { true } else { false }
    }
}
