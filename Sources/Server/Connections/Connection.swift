internal import EventLoop
internal import HTTP
internal import Metrics
internal import System
internal import TokenService
internal import TokenStore

/// One client's connection: reads requests, has them answered, writes the answers in their order.
///
/// Belongs to its loop's thread. What comes with nearly every request is plain calls from one wait to the next; what is rare
/// and waits in the middle, such as a handshake or an answer that the client is slow to take, is async.
///
/// Here is the way from one pause to the next; receiving, answering, and how a connection begins and ends have a file each.
struct Connection: ~Copyable {
    var stream: TCPStream
    var origin: HTTPSPolicy.Origin
    /// For the current request.
    var rules: ServingRules
    var reader: RequestReader
    var output: [UInt8] = []
    /// How much of `output` the socket has taken.
    var sent = 0
    /// When the client has to have taken the answer, or more of it; `never` while it is not waited for.
    var sendDeadline = MonotonicTime.never
    /// Bytes that it has taken since that was set.
    var sentInTime = 0
    /// What the deadline is for; nil before a request's first byte.
    var awaited: RequestReader.Part?
    var deadline = MonotonicTime.never
    /// When the current request's answering began; only kept for the access log.
    var started = MonotonicTime.never
    /// What the current request asks of its answer.
    var asked = RequestTraits(RequestHead())
    /// The current request's.
    var requestID = RequestID.none
    /// Requests received or answered since others last had their turn.
    var streak = 0
    /// The current request came by https.
    var isSecure = false
    var hasAnswered = false
    /// The last answer has been written.
    var isOver = false
    /// The client may be sending still.
    var lingers = false
    /// The request at hand waits for the store, and has been left behind in the buffer.
    var hasLeftRequest = false
    /// What the access log will say of that request.
    var pendingEntry: AccessLog.Entry?
    /// What takes long and comes next.
    var longWork = LongWork.none
    /// Bytes that are counted for this connection in the worker's `bufferBudget`.
    private(set) var countedBytes = 0

    /// Answers are gathered while further requests are at hand, until there are this many bytes.
    static let outputLimit = 64 << 10
    /// Requests of one connection that are answered in a row before other connections get their turn.
    static let streakLimit = 32
    /// Bytes of a long answer that one step makes.
    private static let longStep = 256 << 10
    /// Bodies up to this many bytes are read at once; longer ones wait for their part of a turn.
    private static let shortBody = 32 << 10

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
        /// Others are to have their turn, until this part of one of the next.
        case turn(TurnPart)
        /// This is to be answered as the last: `refuse`.
        case refusal(Refusal)
        /// The last answer has been written: `finish`.
        case finish
        /// There is nothing left to say.
        case end
    }

    /// Work that is done a step a turn, after that of short requests.
    enum LongWork {
        case none
        /// Reading the request at hand, whose body is long; refused if it has not begun by then.
        case request(until: MonotonicTime)
        /// Fetching the long token info of an id; refused if it has not begun by then.
        case fetch(id: [UInt8], until: MonotonicTime)
        /// Sending the rest of a long answer.
        case answer(LongAnswer)

        var isPending: Bool {
            if case .none = self { false } else { true }
        }

        /// Bytes of memory that it holds.
        var bytes: Int {
            if case .answer(let answer) = self { answer.capacity } else { 0 }
        }
    }

    /// Goes on until something has to be waited for.
    ///
    /// - Parameters:
    ///   - reason: What ended the wait for input; nil where there was none.
    ///   - part: The part of the turn that this is called in.
    ///   - worker: Its loop's, here and in all that follows: handed down, for a reference of its own would be counted up and
    ///     down with each use.
    ///   - handler: Is called with such a reason after a pause for input.
    mutating func proceed(
        after reason: WakeReason?, in part: TurnPart, on worker: Worker, calling handler: any ReadinessHandler
    ) -> Pause {
        // Rarely: after a reload, and then before the next request.
        if rules !== worker.rules, reader.isBetweenRequests { takeRules(of: worker) }
        if let reason {
            // Others have had their turn.
            streak = 0
            if let pause = receive(after: reason, on: worker, calling: handler) { return pause }
        }
        // One step of long work a turn.
        var mayWorkLong = part == .long
        while true {
            if longWork.isPending {
                if let pause = workLong(&mayWorkLong, on: worker) { return pause }
                continue
            }
            if isOver || output.count >= Self.outputLimit, let pause = send(on: worker) { return pause }
            if isOver { return lingers ? .finish : .end }
            if worker.loop.isAbandoned { return output.isEmpty ? .end : .finish }
            if streak >= Self.streakLimit {
                streak = 0
                return waitForTurn(.usual, on: worker)
            }
            switch reader.next() {
            case .request:
                guard reader.bodyCount <= Self.shortBody else {
                    longWork = .request(until: longWorkDeadline(on: worker))
                    continue
                }
                if let pause = answerRequest(on: worker) { return pause }
            case .sendContinue: writeContinue(on: worker)
            case .needsMore(let part): if let pause = receive(part, on: worker, calling: handler) { return pause }
            case .refused(let refusal): return isTLSHello(on: worker) ? .end : .refusal(refusal)
            }
        }
    }

    private mutating func takeRules(of worker: Worker) {
        rules = worker.rules
        reader.limits = rules.limits
        origin = rules.https.origin(address: origin.address, isTLS: origin.isTLS, port: origin.port)
    }

    // MARK: - Requests

    /// Answers the request at hand, unless that has to be waited for.
    private mutating func answerRequest(on worker: Worker) -> Pause? {
        switch readRequest(on: worker) {
        case .answer(let response): write(response, on: worker)
        case .fetchLong(let id): longWork = .fetch(id: id, until: longWorkDeadline(on: worker))
        case .store(let tokenInfo, let id):
            // Answers to what came before need not wait for the disk. What the socket does not take goes out with this one's.
            if !output.isEmpty, case .end? = send(on: worker) { return .end }
            guard leaveRequest(toStore: tokenInfo, under: id, on: worker) else {
                write(rules.service.refuse(.overloaded(.buffers), requestID: requestID), on: worker)
                return nil
            }
            return .store(tokenInfo: tokenInfo, id: id)
        }
        return nil
    }

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
        switch rules.https.decision(on: request.head, in: bytes, from: origin) {
        case .served(let isSecure):
            return (rules.service.operation(for: request, in: bytes, requestID: requestID), asked, requestID, isSecure)
        case .redirected:
            let redirect = rules.https.redirect(request.head, in: bytes) ?? rules.service.answer(.missingHost)
            return (.answer(redirect), asked, requestID, false)
        case .refused(let refusal):
            return (.answer(rules.service.answer(refusal)), asked, requestID, false)
        }
    }

    static func requestID(
        _ head: RequestHead, in bytes: Span<UInt8>, from origin: HTTPSPolicy.Origin, by rules: ServingRules,
        on worker: Worker
    ) -> RequestID {
        rules.hasRequestIDs ? worker.requestID(head.forwarding.requestID, in: bytes, from: origin) : .none
    }

    // MARK: - Long work

    /// Waits for its part of a turn, or does one step.
    private mutating func workLong(_ mayWorkLong: inout Bool, on worker: Worker) -> Pause? {
        if worker.loop.isAbandoned {
            longWork = .none
            return output.isEmpty ? .end : .finish
        }
        guard mayWorkLong else {
            // The answers to earlier requests need not wait with it.
            if let pause = send(on: worker) { return pause }
            if case .answer = longWork { shrinkBuffers(on: worker) } else { releaseRoom() }
            return waitForTurn(.long, on: worker)
        }
        // Nobody is left to be answered: the others in the queue need not wait for that.
        if stream.isBroken { return .end }
        mayWorkLong = false
        var work = LongWork.none
        swap(&work, &longWork)
        switch work {
        case .none: return nil
        case .request(let deadline):
            return worker.loop.now < deadline ? answerRequest(on: worker) : .refusal(.outOfBuffers)
        case .fetch(let id, let deadline):
            guard worker.loop.now < deadline else { return .refusal(.outOfBuffers) }
            switch rules.service.fetchLong(id, requestID: requestID) {
            case .answer(let response): write(response, on: worker)
            case .found(let answer):
                write(Response(body: [], laterBytes: answer.length), on: worker)
                // While the pieces go out the client may send what is never read, such as a stray line end: closing then cuts
                // the answer off.
                lingers = true
                return sendPieces(of: answer, on: worker)
            }
            return nil
        case .answer(let answer): return sendPieces(of: answer, on: worker)
        }
    }

    /// Makes and sends the next pieces, as many as one step may.
    private mutating func sendPieces(of answer: consuming LongAnswer, on worker: Worker) -> Pause? {
        var bytes = 0
        while !answer.isComplete && bytes < Self.longStep {
            let before = output.count
            answer.appendPiece(to: &output)
            bytes += output.count - before
            longWork = answer.isComplete ? .none : .answer(answer)
            if let pause = send(on: worker) { return pause }
        }
        if answer.isComplete { sendDeadline = .never }
        return nil
    }

    /// Any number of connections may wait for their turn: what each holds meanwhile is counted.
    ///
    /// Where there is no room for it an answer that has begun can only be cut off; anything else is refused.
    private mutating func waitForTurn(_ part: TurnPart, on worker: Worker) -> Pause {
        if account(for: waitingBytes, on: worker) { return .turn(part) }
        guard case .answer = longWork else {
            longWork = .none
            return .refusal(.outOfBuffers)
        }
        return .end
    }

    private func longWorkDeadline(on worker: Worker) -> MonotonicTime {
        worker.loop.now + rules.deadlines.send
    }

    // MARK: - Buffers

    /// Bytes that it holds while it waits.
    var waitingBytes: Int { reader.bytes.capacity + output.capacity + longWork.bytes }

    /// Counts so many bytes for this connection from now on, in place of those before.
    ///
    /// - Returns: False when `limits.buffers` leaves no room for them; then those before stay counted.
    mutating func account(for bytes: Int, on worker: Worker) -> Bool {
        if bytes > countedBytes {
            guard worker.bufferBudget.take(bytes - countedBytes) else { return false }
        } else if bytes < countedBytes {
            worker.bufferBudget.giveBack(countedBytes - bytes)
        }
        countedBytes = bytes
        return true
    }

    /// Takes the buffers that it has not.
    mutating func takeBuffers(of worker: Worker) {
        var pair = worker.takeBuffers()
        if reader.bytes.capacity == 0 { swap(&reader.bytes, &pair.input) }
        if output.capacity == 0 { swap(&output, &pair.output) }
    }

    /// Gives the buffers back if there is nothing in them.
    mutating func releaseBuffers(to worker: Worker) {
        guard output.isEmpty, let input = reader.takeEmptyBuffer() else { return }
        var pair = BufferPool.Pair(input: input)
        swap(&pair.output, &output)
        worker.giveBuffers(pair)
    }

    /// Gives up what it can do without in a wait in the middle of a request, when memory is scarce.
    mutating func shrinkBuffers(on worker: Worker) {
        if worker.bufferBudget.isScarce { releaseRoom() }
    }

    /// Gives up what it can do without.
    private mutating func releaseRoom() {
        if output.isEmpty { output = [] }
        reader.releaseRoom()
    }
}
