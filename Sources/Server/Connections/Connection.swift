internal import EventLoop
internal import HTTP
internal import System
internal import TokenService

/// One client's connection: reads requests, has them answered, writes the answers in their order.
///
/// Belongs to its loop's thread. What comes with nearly every request is plain calls from one wait to the next; what is rare
/// and waits in the middle, such as a handshake or an answer that the client is slow to take, is async.
///
/// This file leads from one pause to the next. How a connection begins, receives, answers, waits, does long work, sends and
/// ends is in a file each.
struct Connection: ~Copyable {
    var stream: TCPStream
    var origin: HTTPSPolicy.Origin
    /// For the current request.
    var settings: ConnectionSettings
    var reader: RequestReader
    var output: [UInt8] = []
    /// How much of `output` the socket has taken.
    var sent = 0
    /// When the client has to have taken the answer, or more of it; `never` while it is not waited for.
    var sendDeadline = MonotonicTime.never
    /// Bytes that it has taken since that was set.
    var sentSinceRenewal = 0
    /// What the deadline is for; nil before a request's first byte.
    var awaitedPart: RequestReader.Part?
    var deadline = MonotonicTime.never
    /// When the current request's answering began; only kept for the access log.
    var answeringBegan = MonotonicTime.never
    /// What the current request asks of its answer.
    var summary = RequestSummary(RequestHead())
    /// The current request's.
    var requestID = RequestID.none
    /// Requests received or answered since others last had their turn.
    var stepsInTurn = 0
    /// The current request came by https.
    var isSecure = false
    var hasAnswered = false
    /// The last answer has been written.
    var isLastWritten = false
    /// The client may be sending still.
    var lingers = false
    /// The answer that is waited for.
    var pending: PendingAnswer?
    /// When that wait began.
    var waitBegan = MonotonicTime.never
    /// The request whose answer is still to come has been dropped from the buffer.
    var hasLeftRequest = false
    /// The access log's entry for that request.
    var pendingEntry: AccessLog.Entry?
    /// What takes long and comes next.
    var longWork = LongWork.none
    /// Bytes that are counted for this connection in the worker's `bufferBudget`.
    var countedBytes = 0

    /// Answers are gathered while further requests are at hand, until there are this many bytes.
    static let outputLimit = 64 << 10
    /// Requests of one connection that are answered in a row before other connections get their turn.
    static let stepLimit = 32
    /// Bodies up to this many bytes are read at once; longer ones wait for their part of a turn.
    private static let shortBody = 32 << 10

    init(_ stream: consuming TCPStream, from origin: HTTPSPolicy.Origin, on worker: Worker) {
        self.stream = stream
        self.origin = origin
        settings = worker.connectionSettings
        reader = RequestReader(limits: settings.limits)
    }

    /// Why a connection does not go on by itself.
    enum Pause {
        /// It waits for further bytes of the client; the driver's `wake` will be called.
        case input
        /// It waits for a pending answer; the driver's `take` will be called, or `wake` if something ends the wait before.
        case answer
        /// It waits for the client to take what was written, which is counted: call `flush`.
        case output
        /// Other connections are to have their turn: go on in this part of a later one.
        case turn(TurnPart)
        /// This is the last answer: call `refuse`.
        case refusal(Refusal)
        /// The last answer has been written: call `finish`.
        case finish
        /// Nothing is left to be said: close the connection.
        case end
    }

    /// Goes on until something has to be waited for.
    ///
    /// - Parameters:
    ///   - reason: What ended a wait; nil where there was none.
    ///   - part: The part of the turn that this is called in.
    ///   - worker: Its loop's, here and in all that follows: handed down, as a reference of the connection's own would be
    ///     retained and released with each use.
    ///   - driver: Its owner, which waits are to call.
    mutating func proceed(
        after reason: WakeReason?, in part: TurnPart, on worker: Worker, for driver: ConnectionDriver
    ) -> Pause {
        // Rarely: after a reload, and then before the next request.
        if settings !== worker.connectionSettings, reader.isBetweenRequests, !hasLeftRequest {
            takeSettings(of: worker)
        }
        if let reason {
            // Others have had their turn.
            stepsInTurn = 0
            if pending != nil {
                if let pause = endWait(after: reason, on: worker) { return pause }
            } else if let pause = receive(after: reason, on: worker, for: driver) {
                return pause
            }
        }
        // One step of long work a turn.
        var mayWorkLong = part == .long
        while true {
            if longWork.isPending {
                if let pause = workLong(&mayWorkLong, on: worker, for: driver) { return pause }
                continue
            }
            if isLastWritten || output.count >= Self.outputLimit, let pause = send(on: worker) { return pause }
            if isLastWritten { return lingers || hasUnreadInput(on: worker) ? .finish : .end }
            if worker.loop.isAbandoned { return output.isEmpty ? .end : .finish }
            if stepsInTurn >= Self.stepLimit {
                stepsInTurn = 0
                if let pause = waitForTurn(.usual, on: worker) { return pause }
            }
            switch reader.next() {
            case .request:
                guard reader.bodyCount <= Self.shortBody else {
                    longWork = .request(until: longWorkDeadline(on: worker))
                    continue
                }
                if let pause = answerRequest(on: worker, for: driver) { return pause }
            case .sendContinue: writeContinue(on: worker)
            case .needsMore(let part): if let pause = receive(part, on: worker, for: driver) { return pause }
            case .refused(let refusal): return isTLSHello(on: worker) ? .end : .refusal(refusal)
            }
        }
    }

    private mutating func takeSettings(of worker: Worker) {
        settings = worker.connectionSettings
        reader.limits = settings.limits
        origin = settings.https.origin(address: origin.address, isTLS: origin.isTLS, port: origin.port)
    }
}
