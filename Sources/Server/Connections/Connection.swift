internal import EventLoop
internal import HTTP
internal import System
internal import TokenService

/// One client's connection: receives requests, passes them to the service, and sends the answers in order.
///
/// Work that comes with nearly every request is plain function calls from one wait to the next. Rare work that waits in the
/// middle, such as a handshake or sending to a slow client, is async. This file has the connection's state and `proceed`,
/// which runs from one wait to the next; opening, receiving, answering, waiting for answers, long work, sending, buffers and
/// closing have a file each.
///
/// Belongs to its loop's thread.
struct Connection: ~Copyable {
    var stream: TCPStream
    var origin: HTTPSPolicy.Origin
    /// What the client's certificate says; nil without one.
    var certificate: ClientCertificate?
    /// The settings for the current request.
    var settings: ConnectionSettings
    var reader: RequestReader
    var output: [UInt8] = []
    /// How much of `output` the socket has taken.
    var sent = 0
    /// When the client must have read more of the answer; `never` while the connection does not wait for that.
    var sendDeadline = MonotonicTime.never
    /// Bytes sent since `sendDeadline` was set.
    var sentSinceRenewal = 0
    /// The part of a request that the connection waits for; nil while it does not.
    var awaitedPart: RequestReader.Part?
    /// When that part must have arrived.
    var deadline = MonotonicTime.never
    /// When the answering of the current request began; set only if there is an access log.
    var answeringBegan = MonotonicTime.never
    /// The current request.
    var summary = RequestSummary(RequestHead())
    /// The current request's id.
    var requestID = RequestID.none
    /// Receives and answers since other connections last had their turn.
    var stepsInTurn = 0
    /// The number of the listener that accepted the connection.
    let listener: UInt16
    /// Whether the current request came over HTTPS.
    var isSecure = false
    /// Whether any request of the connection has been answered.
    var hasAnswered = false
    /// Whether the connection's last answer has been written.
    var isLastWritten = false
    /// Whether the client may still be sending, so that closing at once could reset the connection.
    var lingers = false
    /// The answer that the connection waits for; nil while it does not.
    var pending: PendingAnswer?
    /// When the wait for the answer of a dropped request began.
    var waitBegan = MonotonicTime.never
    /// Whether the current request has been dropped from the buffer although its answer is still to come.
    var hasDroppedRequest = false
    /// The access log's entry for a request that was dropped.
    var pendingEntry: AccessLog.Entry?
    /// Long work to be done next.
    var longWork = LongWork.none
    /// Bytes counted for this connection in the worker's `bufferBudget`.
    var countedBytes = 0

    /// Answers are gathered while further requests are in the buffer, up to this many bytes.
    static let outputLimit = 64 << 10
    /// Steps after which other connections get their turn.
    static let stepLimit = 32
    /// Bodies of up to this many bytes are read at once; longer ones are long work.
    private static let shortBody = 32 << 10

    /// - Parameter listener: The number of the listener that accepted the connection.
    init(_ stream: consuming TCPStream, from origin: HTTPSPolicy.Origin, through listener: Int, on worker: Worker) {
        self.listener = UInt16(clamping: listener)
        self.stream = stream
        self.origin = origin
        settings = worker.connectionSettings
        reader = RequestReader(limits: settings.limits)
    }

    /// Why `proceed` returns, and what its caller does.
    enum Pause {
        /// Waits for input: the loop will call the driver's `wake`.
        case input
        /// Waits for a pending answer: it will call the driver's `take`, or the loop `wake` if the wait ends without an answer.
        case answer
        /// Waits for the client to read what was written: call `flush`.
        case output
        /// Other connections get their turn: call `proceed` again in this part of a later turn.
        case turn(TurnPart)
        /// The request cannot be read further: call `refuse`.
        case refusal(Refusal)
        /// The last answer has been written: call `finish`.
        case finish
        /// Close the connection.
        case end
    }

    /// Receives, answers and sends until the connection has to wait.
    ///
    /// - Parameters:
    ///   - reason: What ended the last wait; nil if there was none.
    ///   - part: The part of the turn in which this is called.
    ///   - worker: The loop's worker. It is a parameter throughout: a stored reference would be retained and released with each
    ///     use.
    ///   - driver: The connection's owner, which is called when a wait ends.
    mutating func proceed(
        after reason: WakeReason?, in part: TurnPart, on worker: Worker, for driver: ConnectionDriver
    ) -> Pause {
        // After a reload, before the next request.
        if settings !== worker.connectionSettings, reader.isBetweenRequests, !hasDroppedRequest {
            takeSettings(of: worker)
        }
        if let reason {
            // Other connections have had their turn.
            stepsInTurn = 0
            if pending != nil {
                if let pause = endWait(after: reason, on: worker) { return pause }
            } else if let pause = receive(after: reason, on: worker, for: driver) {
                return pause
            }
        }
        // At most one step of long work per turn.
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
                guard certificate == nil || stream.acceptsClient(at: Worker.unixTime) else {
                    worker.noteClosed("its client's certificate has expired, or tls.client_ca has been replaced")
                    lingers = true
                    return .finish
                }
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
        origin = settings.https.origin(
            address: origin.address, isTLS: origin.isTLS, port: origin.port, hidesClient: origin.hidesClient)
    }
}

extension Connection {
    /// Bytes that the connection holds while it waits.
    var waitingBytes: Int { reader.bytes.capacity + output.capacity + longWork.bytes }

    /// Replaces the number of bytes that are counted for this connection.
    ///
    /// - Returns: False if `limits.buffers` leaves no room for them; then nothing changes.
    mutating func account(for bytes: Int, on worker: Worker) -> Bool {
        if bytes > countedBytes {
            guard worker.bufferBudget.take(bytes - countedBytes) else { return false }
        } else if bytes < countedBytes {
            worker.bufferBudget.giveBack(countedBytes - bytes)
        }
        countedBytes = bytes
        return true
    }

    /// Takes the buffers that the connection does not have.
    mutating func takeBuffers(of worker: Worker) {
        var pair = worker.takeBuffers()
        if reader.bytes.capacity == 0 { swap(&reader.bytes, &pair.input) }
        if output.capacity == 0 { swap(&output, &pair.output) }
    }

    /// Returns the buffers to the pool, or frees the one that there is, if both are empty.
    mutating func releaseBuffers(to worker: Worker) {
        guard output.isEmpty else { return }
        guard let input = reader.takeEmptyBuffer() else {
            // A large input buffer was freed before, which leaves the output's alone.
            if reader.isEmpty { output = [] }
            return
        }
        var pair = BufferPool.Pair(input: input)
        swap(&pair.output, &output)
        worker.giveBuffers(pair)
    }

    /// Frees memory that the connection can do without, if memory is scarce.
    mutating func shrinkBuffers(on worker: Worker) {
        if worker.bufferBudget.isScarce { releaseRoom() }
    }

    /// Frees memory that the connection can do without.
    mutating func releaseRoom() {
        if output.isEmpty { output = [] }
        reader.releaseRoom()
    }
}
