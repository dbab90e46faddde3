internal import EventLoop
internal import HTTP
internal import System
internal import TokenService

extension Connection {
    /// Bytes that a client has to read before its time limit for the rest begins again: a client that reads a byte now and then
    /// cannot keep an answer waiting for hours.
    private static let renewal = 256 << 10

    /// Sends the gathered output.
    ///
    /// - Returns: Nil if the socket has taken all of the output, `.output` if the rest has to wait for the client, `.end` if
    ///   the connection is lost or `limits.buffers` leaves no room for the rest.
    mutating func send(on worker: Worker) -> Pause? {
        while sent < output.count {
            guard let count = try? stream.send(output.span.extracting(sent..<output.count)) else {
                dropOutput()
                return .end
            }
            if count == 0 {
                // The client reads slowly. Closing without waiting for it could cut the answer off.
                lingers = true
                if reader.bytes.capacity > 2 * BufferPool.bufferSize { reader.releaseRoom() }
                // Counted now, not when the wait begins: until then other connections may have written as much.
                if account(for: waitingBytes, on: worker) { return .output }
                dropOutput()
                return .end
            }
            sent += count
            sentSinceRenewal += count
        }
        // A large answer takes as long as several short answers.
        if sent > Self.outputLimit {
            stepsInTurn += sent / Self.outputLimit
            worker.loop.noteLongStep()
        }
        output.removeAll(keepingCapacity: true)
        sent = 0
        return nil
    }

    /// Drops the unsent output and all further work: a client that did not read this will not read more.
    private mutating func dropOutput() {
        output.removeAll(keepingCapacity: true)
        sent = 0
        lingers = false
        longWork = .none
    }

    /// Sends the rest of the output, which the socket did not take at once.
    ///
    /// - Returns: False if the client does not read it; then nothing more is sent.
    mutating func flush(on worker: Worker) async -> Bool {
        // A long answer gets here many times, with one time limit for all of them.
        if sendDeadline == .never { renewSendDeadline(on: worker) }
        while true {
            if sentSinceRenewal >= Self.renewal { renewSendDeadline(on: worker) }
            guard await stream.waitUntilWritable(until: sendDeadline) == .ready else {
                dropOutput()
                return false
            }
            switch send(on: worker) {
            case nil:
                if !longWork.isPending { sendDeadline = .never }
                return true
            case .output: break
            default: return false
            }
        }
    }

    private mutating func renewSendDeadline(on worker: Worker) {
        sendDeadline = worker.loop.now + settings.deadlines.body
        sentSinceRenewal = 0
    }
}

/// Sending a connection's last answer and closing it.
extension Connection {
    /// Answers a request that cannot be read further, and closes the connection.
    mutating func refuse(_ refusal: Refusal, on worker: Worker) async {
        if settings.accessLog != nil { answeringBegan = .now }
        let head = reader.partialHead
        summary = RequestSummary(head)
        requestID = worker.requestID(head, in: reader.requestBytes, from: origin)
        switch settings.https.decision(on: head, in: reader.requestBytes, from: origin) {
        case .served(let isSecure): self.isSecure = isSecure
        case .redirected, .refused: isSecure = false
        }
        encode(settings.router.answer(refusal), closes: true, on: worker)
        lingers = true
        await finish(on: worker)
    }

    /// Sends the last answer and ends the connection.
    ///
    /// Closing with unread input makes the kernel send a reset, which can overtake the answer (RFC 9112, section 9.6). If the
    /// client may still be sending, its input is read and dropped for a moment.
    mutating func finish(on worker: Worker) async {
        let isTaken = await sendAll(on: worker)
        reader.dropAll()
        releaseBuffers(to: worker)
        _ = account(for: waitingBytes, on: worker)
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
        let deadline = worker.loop.now + settings.deadlines.linger
        while worker.loop.now < deadline {
            if reader.bytes.capacity == 0 { takeBuffers(of: worker) }
            reader.bytes.removeAll(keepingCapacity: true)
            switch try? stream.receive(into: &reader.bytes, room: BufferPool.bufferSize) {
            case .received:
                stepsInTurn += 1
                if stepsInTurn.isMultiple(of: Self.stepLimit) { await Task.yield() }
            case .wouldBlock:
                releaseBuffers(to: worker)
                guard await stream.waitUntilReadable(until: deadline, isIdle: false) == .ready else { return }
            case .endOfInput, nil: return
            }
        }
    }
}
